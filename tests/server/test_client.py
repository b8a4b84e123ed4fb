"""The typed client against a real server: every operation, streams that are cut, refusals."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import structs

from quiesce import Agent, RunEnded, tool
from quiesce.client import Client, EventGap, StreamedEvent
from quiesce.errors import ServerProblem
from quiesce.events import TextDelta
from quiesce.messages import AssistantMessage
from quiesce.models.scripted import Call, Say, ScriptedModel
from quiesce.server import Settings, new_key, schemas
from quiesce.server.openapi import OPERATIONS

from .support import endless, free_port, serving, talker, two_keys

pytestmark = pytest.mark.promise("P8")


def test_every_operation_of_the_server_is_a_method_with_its_parameters() -> None:
    for operation in OPERATIONS:
        parameters = set(inspect.signature(getattr(Client, operation.id)).parameters)
        body = getattr(schemas, operation.body.rstrip("?"), None)
        wanted = {field.name for field in structs.fields(body)} if body is not None else set()
        wanted |= {each["name"] for each in operation.parameters if each["in"] == "query"}
        wanted |= {"wait"} if operation.waits else set()
        assert wanted <= parameters, operation.id


async def _read_until(events: AsyncIterator[StreamedEvent], kind: str) -> None:
    async for each in events:
        if each.event.type == kind:
            return


def test_a_run_is_paused_and_goes_on() -> None:
    async def main(url: str) -> None:
        async with Client(url) as client:
            run = await client.start_run("Build.")
            events = client.stream_events(run.id)
            await _read_until(events, "text")
            assert await client.pause_run(run.id)
            assert not await client.pause_run(run.id)  # it is paused already
            release.set()
            await _read_until(events, "run_paused")
            assert (await client.show_run(run.id)).run.paused
            assert await client.pause_run(run.id, paused=False)
            rest = [each.event.type async for each in events]
            assert rest[0] == "run_resumed"
            assert rest[-1] == "run_ended"
            assert not (await client.show_run(run.id)).run.paused
            with pytest.raises(ServerProblem) as refused:
                await client.pause_run(run.id)
            assert refused.value.code == "too_late"
            assert [each.action for each in (await client.show_audit()).entries] == ["unpause", "pause", "start"]

    release = threading.Event()

    @tool
    def wait() -> str:
        """Wait."""
        release.wait(20)
        return "waited"

    with serving(Agent(ScriptedModel([Say("First. "), Call("wait")], "Done."), tools=[wait])) as served:
        asyncio.run(main(served.url))


def test_a_run_is_started_read_stopped_and_deleted() -> None:
    async def main(url: str) -> None:
        async with Client(url) as client:
            assert (await client.health()).status == "ok"
            assert [agent.name for agent in await client.list_agents()] == ["teller"]
            run = await client.start_run("A story.", session="ann", idempotency_key="one")
            again = await client.start_run("A story.", session="ann", idempotency_key="one")
            assert again.id == run.id
            events = client.stream_events(run.id)
            async for each in events:
                if isinstance(each.event, TextDelta):
                    break
            await events.aclose()
            assert [each.id for each in await client.list_runs(state="running")] == [run.id]
            stopped = await client.cancel_run(run.id, "enough", wait=20)
            assert stopped.accepted
            assert stopped.receipt is not None
            assert stopped.receipt.cause is not None
            assert stopped.receipt.cause.reason == "enough"
            assert isinstance((await client.show_run(run.id)).messages[-1], AssistantMessage)
            assert (await client.show_session("ann")).session.name == "ann"
            assert [each.name for each in await client.list_sessions()] == ["ann"]
            assert (await client.show_usage()).total.calls == 1
            await client.delete_run(run.id)
            with pytest.raises(ServerProblem) as refused:
                await client.show_run(run.id)
            assert refused.value.status in (404, 410)
            assert refused.value.code
            await client.delete_session("ann")

    with serving(endless(name="teller")) as served:
        asyncio.run(main(served.url))


def test_a_refusal_has_a_status_and_no_answer_has_none() -> None:
    async def main(url: str, key: str) -> None:
        async with Client(url, "wrong") as client:
            with pytest.raises(ServerProblem) as refused:
                await client.list_runs()
            assert refused.value.status == 401
            assert "wrong" not in str(refused.value)
        async with Client(url, key) as client:
            for wrong in ("nosuchrun", "../healthz"):
                with pytest.raises(ServerProblem) as refused:
                    await anext(client.stream_events(wrong))
                assert refused.value.status == 404
        async with Client(f"http://127.0.0.1:{free_port()}") as client:
            with pytest.raises(ServerProblem, match="No answer") as unreachable:
                await anext(client.stream_events("x"))
            assert unreachable.value.status == 0
        with pytest.raises(ServerProblem, match="not the address"):
            Client("http://127.0.0.1:port")

    ann, _, keys = two_keys()
    with serving(talker(), keys=keys) as served:
        asyncio.run(main(served.url, ann))


@pytest.mark.parametrize("end", ["\n", "\r\nX-Other: y", "é", " more"])
def test_a_key_that_no_request_can_carry_is_refused_and_not_shown(end: str) -> None:
    key = new_key()
    with pytest.raises(ServerProblem, match="API key") as refused:
        Client("http://127.0.0.1:8765", key + end)
    assert key not in repr(refused.value.__cause__ or refused.value) + str(refused.value)


def test_text_that_cannot_be_sent_is_a_problem_too() -> None:
    async def main(url: str) -> None:
        async with Client(url) as client:
            for request in (
                lambda: client.start_run("\udcff"),
                lambda: client.start_run("Hello", idempotency_key="é"),
                lambda: client.list_runs(session="\udcff"),
                lambda: client.cancel_run("\udcff"),
            ):
                with pytest.raises(ServerProblem):
                    await request()

    with serving(talker()) as served:
        asyncio.run(main(served.url))


def test_answers_are_given_by_id() -> None:
    @tool(requires_approval=True)
    async def build(number: int) -> str:
        """Build something."""
        return f"built {number}"

    async def main(url: str) -> None:
        async with Client(url) as client:
            run = await client.start_run("Build.")
            _ = [each async for each in client.stream_events(run.id)]
            asked = (await client.show_run(run.id)).run.interrupts
            assert [each.arguments for each in asked] == [{"number": 1}]
            going_on = await client.resume_run(run.id, {asked[0].id: True})
            events = [each.event async for each in client.stream_events(going_on.id)]
            assert isinstance(events[-1], RunEnded)
            assert (await client.show_run(going_on.id)).messages[-1].text == "Done."

    agent = Agent(ScriptedModel([Call("build", {"number": 1})], then="Done."), tools=[build])
    with serving(agent) as served:
        asyncio.run(main(served.url))


# --- Streams that are cut -------------------------------------------------------------------------------------------


@asynccontextmanager
async def cutting_proxy(port: int, after: int) -> AsyncIterator[tuple[str, list[int]]]:
    """The address of a proxy that resets a connection after so many bytes of answers, and the bytes of each so far."""
    passed: list[int] = []
    tasks: set[asyncio.Task[None]] = set()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int | None) -> None:
        try:
            while data := await reader.read(64):
                writer.write(data)
                if number is not None:
                    passed[number] += len(data)
                    if passed[number] > after:
                        writer.transport.abort()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        passed.append(0)
        tasks.add(asyncio.create_task(forward(reader, there_writer, None)))
        tasks.add(asyncio.create_task(forward(there_reader, writer, len(passed) - 1)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", passed
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.promise("P3")
def test_a_stream_that_is_cut_again_and_again_has_every_event_once() -> None:
    words = [f"word{number} with\u2028a line break " for number in range(400)]

    async def main(port: int, url: str) -> None:
        async with Client(url) as direct:
            run = await direct.start_run("A story.")
            expected = [each async for each in direct.stream_events(run.id)]
        async with cutting_proxy(port, 25_000) as (proxy, passed), Client(proxy) as client:
            seen = [each async for each in client.stream_events(run.id)]
            assert len(passed) > 2, "the proxy has cut nothing"
        assert seen == expected
        assert "".join(each.event.text for each in seen if isinstance(each.event, TextDelta)) == "".join(words)
        assert [each.number for each in seen] == list(range(1, len(seen) + 1))

    with serving(Agent(ScriptedModel([Say("".join(words), chunk=31)]))) as served:
        asyncio.run(main(served.port, served.url))


def test_a_server_that_stays_away_is_a_problem_after_a_while() -> None:
    async def main(port: int, url: str) -> None:
        async with Client(url) as direct:
            run = await direct.start_run("A story.")
        async with cutting_proxy(port, 10_000) as (proxy, _), Client(proxy) as client:
            with pytest.raises(ServerProblem, match="No answer"):
                _ = [each async for each in client.stream_events(run.id, patience=0.0)]

    with serving(Agent(ScriptedModel([Say("word " * 1_000, chunk=5)]))) as served:
        asyncio.run(main(served.port, served.url))


def test_events_that_are_no_longer_kept_are_a_gap() -> None:
    async def main(url: str) -> list[StreamedEvent]:
        async with Client(url) as client:
            run = await client.start_run("A story.")
            await client.cancel_run(run.id, mode=_after_turn(), wait=20)
            return [each async for each in client.stream_events(run.id)]

    def _after_turn() -> Any:
        from quiesce import Mode

        return Mode.AFTER_TURN

    agent = Agent(ScriptedModel([Say("word " * 400, chunk=5)]))
    with serving(agent, settings=Settings(log_bytes=4_000)) as served:
        events = asyncio.run(main(served.url))
    gap = events[0].event
    assert isinstance(gap, EventGap)
    assert gap.first == 1
    assert events[1].number == gap.last + 1


def test_the_list_of_runs_is_followed() -> None:
    async def main(url: str) -> None:
        async with Client(url) as client:
            changes = client.stream_changes()
            assert isinstance(await anext(changes), schemas.RunsListed)
            run = await client.start_run("Hello.")
            async for change in changes:
                if isinstance(change, schemas.RunChanged) and change.run.state == "ended":
                    assert change.run.id == run.id
                    break
            await changes.aclose()

    with serving(talker()) as served:
        asyncio.run(main(served.url))


# --- A server that is none of ours, or a newer one -------------------------------------------------------------------


@asynccontextmanager
async def answering(kind: str, body: bytes) -> AsyncIterator[str]:
    """The address of a server that gives this answer to every request."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        pytest.param("text/html", b"<html>\n\ndata: please log in\n\n", id="a page"),
        pytest.param("text/html", b"<html>Please log in</html>", id="a page without lines"),
        pytest.param("text/event-stream", b"data: not JSON\n\n", id="no JSON"),
        pytest.param("text/event-stream", b'id: 1\ndata: {"type":"text","te\n\n', id="half an event"),
        pytest.param("text/event-stream", b'id: one\ndata: {"type":"text","text":"x"}\n\n', id="no number"),
        pytest.param("text/event-stream", b'data: {"type":"text","text":"x"}\n\n', id="without a number"),
        pytest.param("text/event-stream", b'id: \xff\ndata: {"type":"text","text":"x"}\n\n', id="no UTF-8 in a number"),
        pytest.param("text/event-stream", b'id: 1\nat: noon\ndata: {"type":"text","text":"x"}\n\n', id="no time"),
        pytest.param("text/event-stream", b'id: 1\ndata: {"type":"text","text":"\xff"}\n\n', id="no UTF-8"),
        pytest.param("text/event-stream", b'id: 1\ndata: {"x":' + b"[" * 100_000 + b"\n\n", id="deep"),
    ],
)
def test_a_stream_of_another_kind_of_server_is_a_problem(kind: str, body: bytes) -> None:
    async def main() -> None:
        async with answering(kind, body) as url, Client(url) as client:
            changes = () if b"text" in body else (client.stream_changes(),)  # to it, this is a newer server
            for stream in (client.stream_events("x"), *changes):
                with pytest.raises(ServerProblem, match="not like") as problem:
                    _ = [each async for each in stream]
                assert problem.value.status == 200

    asyncio.run(main())


def test_what_a_newer_server_tells_of_is_left_out() -> None:
    body = b'id: 1\nevent: new\ndata: {"type":"new"}\n\nid: 2\nevent: gone\ndata: {"type":"gone","id":"abc"}\n\n'

    async def main() -> None:
        async with answering("text/event-stream", body) as url, Client(url) as client:
            changes = client.stream_changes()
            assert await anext(changes) == schemas.RunGone("abc")
            await changes.aclose()

    asyncio.run(main())
