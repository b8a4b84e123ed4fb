"""Streams of events: leaving one is a stop, and so is cancelling who reads it."""

import asyncio

import pytest

from quiesce import Agent
from quiesce.events import RunEnded, TextDelta
from tests.core.kit import answers, scripted
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


async def test_a_stream_that_nobody_reads_does_not_start():
    model = scripted()
    stream = Agent(model).stream_async("go")
    await stream.aclose()
    del stream
    assert model.requests == []


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
