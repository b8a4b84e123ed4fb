"""Events on their way: batches, back-pressure, and a stop that needs no reader."""

import asyncio

import pytest

from quiesce import Agent
from quiesce.events import RunEnded, RunStarted, TextDelta
from quiesce.models.scripted import Say, Stall
from quiesce.run.events.fanout import CHECKPOINT_EVERY, HIGH_WATER, EventFanout
from tests.core.kit import Record, ended, passes, scripted, until

pytestmark = pytest.mark.promise("P3", "P7")
LAST = TextDelta("last")


async def test_every_reader_gets_every_event_in_order():
    broadcast = EventFanout()
    first, second = broadcast.reader(), broadcast.reader()
    for number in range(5):
        broadcast.push(TextDelta(str(number)))
    broadcast.close(LAST)
    for reader in (first, second):
        assert [event.text async for event in reader] == ["0", "1", "2", "3", "4", "last"]


async def test_a_reader_without_history_gets_what_comes_and_one_after_the_end_the_last_event():
    broadcast = EventFanout()
    broadcast.push(TextDelta("early"))
    late = broadcast.reader(history=False)
    broadcast.push(TextDelta("later"))
    broadcast.close(LAST)
    assert [event.text async for event in late] == ["later", "last"]
    assert [event.text async for event in broadcast.reader(history=False)] == ["last"]


async def test_a_waiting_reader_is_woken_once_for_a_batch():
    broadcast = EventFanout()
    reader = broadcast.reader()
    waiting = asyncio.create_task(anext(reader))
    await passes()
    for number in range(3):
        broadcast.push(TextDelta(str(number)))
    assert (await waiting).text == "0"
    assert len(reader._buffer.events) == 0, "the rest of the batch is at hand"
    assert (await anext(reader)).text == "1"


async def test_a_reader_that_is_cancelled_while_it_waits_can_go_on():
    broadcast = EventFanout()
    reader = broadcast.reader()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await anext(reader)
    broadcast.close(LAST)
    assert (await anext(reader)).text == "last"
    with pytest.raises(StopAsyncIteration):
        await anext(reader)


async def test_a_slow_reader_makes_the_writer_wait_until_it_reads_or_leaves():
    for leaves in (False, True):
        broadcast = EventFanout()
        reader = broadcast.reader()
        for _ in range(HIGH_WATER):
            broadcast.push(TextDelta("x"))
        writer = asyncio.create_task(broadcast.checkpoint())
        await passes()
        assert not writer.done()
        if leaves:
            reader.close()
            reader.close()
        else:
            await anext(reader)
        await writer
        assert broadcast.since_checkpoint == 0


async def test_a_tap_sees_each_event_as_it_happens_and_can_be_taken_off():
    broadcast, seen = EventFanout(), []
    off = broadcast.tap(seen.append)
    broadcast.push(TextDelta("1"))
    off()
    broadcast.push(TextDelta("2"))
    assert [event.text for event in seen] == ["1"]


async def test_a_reader_that_never_reads_holds_the_run_but_not_its_stop():
    agent = Agent(scripted([Say("x" * 5000, chunk=1)]))
    run = agent.start("go")
    record = Record(run)
    reader = run.events()
    await until(lambda: len(reader._buffer.events) >= HIGH_WATER)
    await passes(50)
    assert not run.done
    assert len(reader._buffer.events) < HIGH_WATER + CHECKPOINT_EVERY + 10
    run.cancel()
    end = await ended(run, record, agent)
    assert end.reason == "cancelled"
    events = [event async for event in reader]
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunEnded)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == end.result.text


async def test_a_reader_that_was_dropped_does_not_hold_the_run():
    agent = Agent(scripted([Say("x" * 5000, chunk=1)]))
    run = agent.start("go")
    async for event in run:
        if isinstance(event, TextDelta):
            break
    del event
    result = await asyncio.wait_for(run, 20)
    assert result.stop_reason == "end_turn"


async def test_a_model_that_never_waits_does_not_starve_the_loop():
    agent = Agent(scripted([Say("x" * 5000, chunk=1), Stall()]))
    run = agent.start("go")
    rounds = 0
    while len(run.messages) < 2 or len(run.messages[-1].text) < 4000:
        rounds += 1
        await asyncio.sleep(0)
    assert rounds > 4000 // CHECKPOINT_EVERY
    run.cancel()
    await run.stopped()


async def test_a_ctrl_c_in_the_middle_of_the_last_event_does_not_make_two():
    broadcast, seen = EventFanout(), []
    interrupts = iter([KeyboardInterrupt()])

    def interrupted(_: object) -> None:
        for error in interrupts:
            raise error
        seen.append("second tap")

    broadcast.tap(lambda _: seen.append("first tap"))
    broadcast.tap(interrupted)
    reader, late = broadcast.reader(), broadcast.reader(history=False)
    with pytest.raises(KeyboardInterrupt):
        broadcast.close(LAST)
    assert not broadcast.closed
    broadcast.push(TextDelta("too late"))
    broadcast.close(TextDelta("another last one"))
    assert broadcast.closed
    assert seen == ["first tap", "second tap"]
    for each in (reader, late, broadcast.reader()):
        assert [event.text async for event in each] == ["last"]
