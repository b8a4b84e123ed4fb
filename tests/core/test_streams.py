"""Streams of events: leaving one is a stop, and so is cancelling who reads it."""

import asyncio

import pytest

from quiesce import Agent
from quiesce.events import RunEnded, TextDelta
from quiesce.run.events.stream import events_in_this_thread
from quiesce.run.handle import Run
from tests.core.kit import answers, passes, scripted
from tests.core.stalled import stalled

pytestmark = pytest.mark.promise("P3", "P5")


@pytest.mark.case("openai-agents-python#2222", "openai-agents-python#574")
@pytest.mark.parametrize("how", ["break and close", "with", "del", "aclose"])
async def test_leaving_a_stream_early_is_a_stop(how):
    agent, model = stalled()
    stream = agent.stream_async("go")
    run = stream.run
    if how == "with":
        async with stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    break
    else:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
        if how != "del":
            await stream.aclose()
            await stream.aclose()
    del stream
    receipt = await run.stopped()
    assert (receipt.stop_reason, receipt.cause.source) == ("cancelled", "disconnect")
    assert model.open_streams == 0
    assert agent.messages[-1].text == "Well"
    await answers(agent)


async def test_a_stream_that_is_read_to_its_end():
    agent = Agent(scripted("Hello there."))
    async with agent.stream_async("go") as stream:
        events = [event async for event in stream]
    assert isinstance(events[-1], RunEnded)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Hello there."
    assert stream.run.done


def test_a_thread_that_comes_to_a_run_that_has_ended_gets_its_last_event():
    """A prompt that steers a run of another loop: the run may end before the thread is there."""
    ended = asyncio.run(_ended_run())
    events = list(events_in_this_thread(lambda: (ended, False)))
    assert [type(event) for event in events] == [RunEnded]


async def _ended_run() -> Run:
    run = Agent(scripted("Hello there.")).start("go")
    await run
    return run


async def test_a_stream_that_nobody_reads_does_not_start():
    model = scripted()
    agent = Agent(model)
    stream = agent.stream_async("go")
    await passes(50)
    assert agent.active_runs == ()
    await stream.aclose()
    del stream
    assert (model.requests, agent.messages) == ([], ())


async def test_cancelling_the_task_that_reads_stops_the_run():
    agent, _ = stalled()
    streams = []

    async def read() -> None:
        streams.append(agent.stream_async("go"))
        async for _ in streams[0]:
            pass

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await read()
    run = streams[0].run
    assert run.done
    assert run.inspect().result.receipt.cause.source == "caller"


async def test_a_failure_is_raised_after_the_last_event():
    from quiesce.errors import ModelProtocolError
    from quiesce.models.scripted import Raw

    agent = Agent(scripted([Raw("garbage")]))
    seen = []
    with pytest.raises(ModelProtocolError):
        async for event in agent.stream_async("go"):
            seen.append(event)
    assert isinstance(seen[-1], RunEnded)
    assert seen[-1].stop_reason == "error"
    assert "str, which is not a delta" in seen[-1].error
