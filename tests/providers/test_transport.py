"""The transport to a provider keeps its word: whole answers, typed errors in time, and nothing left of a stop.

The transport of httpx2 is the oracle where both must agree; see also `test_transport_differential.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
import struct
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import httpx2
import pytest
import trustme

from quiesce import Agent, Retry
from quiesce.errors import ConnectionFailed, ModelProtocolError, ModelTimeout, RunError, StreamBroken, TLSFailed
from quiesce.events import TextDelta
from quiesce.models.wire import certificates as certificates_module
from quiesce.models.wire import transport as transport_module
from quiesce.models.wire.connection import Connection
from quiesce.models.wire.transport import BODY, StreamingTransport
from quiesce.testing.virtual_time import VirtualLoop

from .raw_server import (
    OK,
    TRANSPORTS,
    WITHIN,
    Outcome,
    Peer,
    always,
    client_of,
    once,
    outcome,
    raw,
    silent,
    sockets_back_to,
    sockets_open,
    trusting,
)
from .recordings import ANSWER, OPENAI_CHAT, PROVIDERS, Provider
from .wire import Play, chunk, head, wire

pytestmark = pytest.mark.promise("P5", "P7")
each_transport = pytest.mark.parametrize("which", TRANSPORTS)


def foreign() -> httpx2.AsyncClient:
    """The client over the transport of httpx2 that a user would give. It reads no certificates, which takes time."""
    return httpx2.AsyncClient(timeout=WITHIN, verify=trusting())


HALF = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"
HALF_CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"
HALF_TO_CLOSE = b"HTTP/1.1 200 OK\r\n\r\nhalf"
HALF_OF_CHUNK = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\nhalf"


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "MAX_REQUESTS", 1)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each read of our transport has brought. Nothing is changed by counting them."""
    found: list[int] = []
    received = Connection.data_received

    def count(self: Connection, data: bytes) -> None:
        found.append(len(data))
        received(self, data)

    monkeypatch.setattr(Connection, "data_received", count)
    return found


# --- Connections -----------------------------------------------------------------------------------------------------


@each_transport
async def test_requests_one_after_the_other_use_one_connection(which: str) -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    empty = b"HTTP/1.1 204 No Content\r\n\r\n"
    answers = [OK, chunked, empty, OK, chunked]

    async def handler(peer: Peer) -> None:
        for answer in answers:
            await peer.request()
            await peer.send(answer)
        await peer.gone()

    async with raw(handler) as server, client_of(which) as client:
        found = [(await outcome(client, server.url)).body for _ in answers]
        assert found == [b"ok", b"ok", b"", b"ok", b"ok"]
        assert server.connections == 1


@each_transport
async def test_requests_at_the_same_time_have_a_connection_each(which: str) -> None:
    together = asyncio.Barrier(5)

    async def handler(peer: Peer) -> None:
        await peer.request()
        await together.wait()
        while True:
            await peer.send(OK)
            await peer.request()

    async with raw(handler) as server, client_of(which) as client:
        found = await asyncio.gather(*(outcome(client, server.url) for _ in range(5)))
        assert [each.body for each in found] == [b"ok"] * 5
        assert server.connections == 5
        assert (await outcome(client, server.url)).body == b"ok"
        assert server.connections == 5  # all five are kept


@each_transport
async def test_a_connection_that_the_server_has_closed_is_not_used_again(which: str) -> None:
    async with raw(once(OK)) as server, client_of(which) as client:
        for number in range(1, 4):
            assert (await outcome(client, server.url)).body == b"ok"
            await server.all_gone()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert server.connections == number


def blocking_server(extra: bytes = b"", *, close: bool = False) -> tuple[int, threading.Event, threading.Thread]:
    """In a thread of its own: after the first response it goes on when told, however busy the client's loop is."""
    listener = socket.create_server(("127.0.0.1", 0))
    go_on = threading.Event()

    def run() -> None:
        with listener:
            listener.settimeout(WITHIN)
            first, _ = listener.accept()
            with first:
                first.recv(65536)
                first.sendall(OK)
                go_on.wait(WITHIN)
                first.sendall(extra)
                if close:
                    first.close()
                told.set()
                second, _ = listener.accept()
                with second:
                    second.recv(65536)
                    second.sendall(OK)

    told = threading.Event()
    thread = threading.Thread(target=run, name="server")
    thread.start()
    go_on.told = told  # type: ignore[attr-defined]
    return listener.getsockname()[1], go_on, thread


@each_transport
@pytest.mark.parametrize("how", ["closed", "unasked bytes", "unasked response"])
async def test_a_kept_connection_is_looked_at_before_it_is_used(which: str, how: str) -> None:
    """The loop was busy when the server closed the connection, or wrote to it: nothing of that has been read yet."""
    extra = {"closed": b"", "unasked bytes": b"???", "unasked response": OK.replace(b"ok", b"no")}[how]
    port, go_on, thread = blocking_server(extra, close=how == "closed")
    url = f"http://127.0.0.1:{port}/"
    try:
        async with client_of(which) as client:
            assert (await outcome(client, url)).body == b"ok"
            go_on.set()
            go_on.told.wait(WITHIN)  # type: ignore[attr-defined]  # without giving the loop a chance
            found = await outcome(client, url)
            assert (found.error, found.body) == (None, b"ok")
    finally:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            pass  # where the second connection never came
        await asyncio.to_thread(thread.join, WITHIN)


def test_a_connection_that_was_idle_for_long_is_not_used_again() -> None:
    async def main() -> None:
        async with raw(always(OK)) as server, client_of() as client:
            await outcome(client, server.url)
            await asyncio.sleep(transport_module.IDLE_TIMEOUT - 0.1)
            await outcome(client, server.url)
            assert server.connections == 1
            await asyncio.sleep(transport_module.IDLE_TIMEOUT + 0.1)
            await outcome(client, server.url)
            assert server.connections == 2
            await server.until(lambda: server.open == 1)  # and the old one is closed

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


async def test_so_many_connections_are_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "MAX_IDLE", 3)
    together = asyncio.Barrier(6)

    async def handler(peer: Peer) -> None:
        await peer.request()
        await together.wait()
        await peer.send(OK)
        await peer.gone()

    async with raw(handler) as server, client_of() as client:
        await asyncio.gather(*(outcome(client, server.url) for _ in range(6)))
        await server.until(lambda: server.open == 3)
        await passes(50)
        assert server.open == 3


@each_transport
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nconnection: Keep-Alive, Close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ],
    ids=["close", "list", "chunked", "HTTP/1.0"],
)
async def test_a_connection_that_the_server_wants_closed_is_closed(which: str, answer: bytes) -> None:
    async with raw(silent(answer)) as server, client_of(which) as client:
        for number in range(1, 3):
            assert (await outcome(client, server.url)).body == b"ok"
            await server.all_gone()
            assert server.connections == number


@pytest.mark.parametrize("extra", [OK, b"HTTP", b"garbage", b"\r\nx"], ids=["response", "half", "garbage", "line"])
@pytest.mark.parametrize(
    "answer",
    [OK, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"],
    ids=["length", "chunked"],
)
async def test_bytes_after_the_end_of_a_response_belong_to_no_other(answer: bytes, extra: bytes) -> None:
    async with raw(silent(answer + extra)) as server, client_of() as client:
        for number in range(1, 3):
            found = await outcome(client, server.url)
            assert (found.status, found.body, found.error) == (200, b"ok", None)
            await server.all_gone()
            assert server.connections == number


async def test_bytes_on_an_idle_connection_end_it() -> None:
    write = asyncio.Event()

    async def handler(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await write.wait()
        await peer.send(OK.replace(b"ok", b"no"))
        await peer.gone()

    async with raw(handler) as server, client_of() as client:
        assert (await outcome(client, server.url)).body == b"ok"
        write.set()
        await server.all_gone()
        assert (await outcome(client, server.url)).body == b"ok"
        assert server.connections == 2


async def test_closing_the_transport_leaves_nothing() -> None:
    """Neither of kept connections, nor of responses that were read in part or not at all."""
    before, tasks = sockets_open(), len(asyncio.all_tasks())
    answers = iter([OK, HALF, HALF_CHUNKED, b"HTTP/1.1 200 OK\r\n\r\nhalf"])

    async def handler(peer: Peer) -> None:
        await peer.request()
        await peer.send(next(answers))
        await peer.gone()

    async with raw(handler) as server:
        client = client_of()
        requests = [client.build_request("POST", server.url, content=b"{}") for _ in range(4)]
        responses = [await client.send(each, stream=True) for each in requests]
        halves = [await anext(response.aiter_raw()) for response in responses[1:]]
        assert halves == [b"half"] * 3
        await client.aclose()
        await server.all_gone()
        for response in responses:
            await response.aclose()
    await sockets_back_to(before)
    assert len(asyncio.all_tasks()) == tasks


@pytest.mark.parametrize(
    ("which", "answer"),
    [
        *((which, answer) for which in TRANSPORTS for answer in (HALF, HALF_CHUNKED)),
        ("own", HALF_TO_CLOSE),
        ("httpx2", HALF_TO_CLOSE),
    ],
)
async def test_closing_the_transport_under_a_reader_is_no_end_of_the_body(which: str, answer: bytes) -> None:
    """A body that was cut here is not taken for a whole one, not even where the end of the connection is its end."""
    async with raw(silent(answer)) as server:
        client = client_of(which)
        reading = asyncio.create_task(outcome(client, server.url))
        await server.until(lambda: server.open == 1)
        for _ in range(100):
            await asyncio.sleep(0)
        await client.aclose()
        assert (await reading).error in (httpx2.ReadError, httpx2.RemoteProtocolError)


@each_transport
async def test_too_many_requests_wait_only_so_long(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "MAX_REQUESTS", 2)
    go_on = asyncio.Event()

    async def handler(peer: Peer) -> None:
        while True:
            await peer.request()
            await go_on.wait()
            await peer.send(OK)

    limits = httpx2.Limits(max_connections=2)
    client = client_of() if which == "own" else httpx2.AsyncClient(verify=trusting(), limits=limits)
    async with raw(handler) as server, client:
        client.timeout = httpx2.Timeout(WITHIN, pool=0.05)
        two = [asyncio.create_task(outcome(client, server.url)) for _ in range(2)]
        await server.until(lambda: server.open == 2)
        assert (await outcome(client, server.url)).error is httpx2.PoolTimeout
        client.timeout = httpx2.Timeout(WITHIN)
        third = asyncio.create_task(outcome(client, server.url))
        go_on.set()
        assert [each.body for each in await asyncio.gather(*two, third)] == [b"ok"] * 3


async def test_many_answers_without_a_body_on_one_connection() -> None:
    """Each is cut into two reads. The heads of all of them together are longer than one head may be."""
    answer = b"HTTP/1.1 204 No Content\r\nx-filler: " + b"f" * 20_000 + b"\r\n\r\n"
    async with raw(always(answer[:10_000], answer[10_000:])) as server, client_of() as client:
        for _ in range(12):
            assert (await outcome(client, server.url)).error is None
        assert server.connections == 1


async def test_a_response_that_nobody_read_leaves_nothing_for_the_next() -> None:
    """It has arrived whole, so that its connection is kept."""
    unread = b"HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n" + b"n" * 300_000
    answers = iter([unread.replace(b"300000", b"6")[:-299_994], OK, unread, OK])

    async def handler(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(next(answers))

    async with raw(handler) as server, client_of() as client:
        for _ in range(2):
            response = await client.send(client.build_request("POST", server.url, content=b"{}"), stream=True)
            for _ in range(20):
                await asyncio.sleep(0)
            await response.aclose()
            found = await outcome(client, server.url)
            assert (found.body, found.error) == (b"ok", None)


# --- Responses -------------------------------------------------------------------------------------------------------

WHOLE = {
    "length": (b"HTTP/1.1 200 OK\r\nA:\r\nB:  b\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
    "chunked": (
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhe\r\n003;c="d"\r\nllo\r\n0;e\r\n\r\n',
        b"hello",
    ),
    "close": (b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nhello", b"hello"),
    "empty": (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b""),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "100": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", b"hi"),
    "103": (
        b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + b"HTTP/1.1 100 Continue\r\n\r\n" + OK.replace(b"ok", b"hi"),
        b"hi",
    ),
    "no reason": (b"HTTP/1.1 299 \r\ncontent-length: 2\r\n\r\nhi", b"hi"),
    "not even a space": (b"HTTP/1.1 429\r\ncontent-length: 2\r\n\r\nno", b"no"),
}


def same(own: Outcome, other: Outcome) -> None:
    assert own == other


@pytest.mark.parametrize("name", WHOLE)
async def test_a_response_cut_in_two_at_every_byte(name: str) -> None:
    """It is what the transport of httpx2 makes of it."""
    answer, body = WHOLE[name]
    place = 0

    async def handler(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(*(part for part in (answer[:place], answer[place:]) if part))
            if name == "close":
                return

    async with raw(handler) as server, client_of("httpx2") as oracle, client_of() as client:
        expected = await outcome(oracle, server.url)
        assert (expected.error, expected.body) == (None, body)
        for each in range(len(answer)):
            place = each
            same(await outcome(client, server.url), expected)
        if name != "close":
            assert server.connections == 2


@pytest.mark.parametrize("name", WHOLE)
async def test_a_response_byte_by_byte(name: str, reads: list[int]) -> None:
    answer, _ = WHOLE[name]

    async def handler(peer: Peer) -> None:
        await peer.request()
        for place in range(len(answer)):
            peer.writer.write(answer[place : place + 1])
            while len(reads) <= place:
                await asyncio.sleep(0)

    async with raw(handler) as server, client_of() as client:
        found = await outcome(client, server.url)
        assert reads == [1] * len(answer)
    async with raw(once(answer)) as server, client_of("httpx2") as oracle:
        same(found, await outcome(oracle, server.url))


@pytest.mark.parametrize(
    ("which", "split"),
    [("own", False), ("own", True), ("httpx2", False), ("httpx2", True)],
)
async def test_trailers_are_not_headers(which: str, split: bool) -> None:
    """Else what the headers are would depend on how the bytes are cut into reads."""
    answer = [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"5\r\nhello\r\n0\r\nX-Late: 1\r\nContent-Encoding: gzip\r\n\r\n",
    ]
    async with raw(once(*(answer if split else [b"".join(answer)]))) as server, client_of(which) as client:
        found = await outcome(client, server.url)
        assert (found.body, found.error) == (b"hello", None)
        assert found.headers == [(b"Transfer-Encoding", b"chunked")]


@each_transport
async def test_the_space_around_a_header_is_not_part_of_it(which: str) -> None:
    answer = b"HTTP/1.1 200 OK\r\nA: \t b c \t \r\nContent-Length:2 \r\n\r\nok"
    async with raw(once(answer)) as server, client_of(which) as client:
        found = await outcome(client, server.url)
        assert (found.body, found.error) == (b"ok", None)
        assert found.headers == [(b"A", b"b c"), (b"Content-Length", b"2")]


async def test_an_upgrade_that_nobody_asked_for_is_an_error() -> None:
    answer = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nxx"
    async with raw(silent(answer)) as server, client_of() as client:
        assert (await outcome(client, server.url)).error is httpx2.RemoteProtocolError
        await server.all_gone()


BROKEN = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nA: b\r\n",
    "garbage": b"SSH-2.0-OpenSSH_9.6\r\n",
    "other garbage": b"\x15\x03\x01\x00\x02\x02\x16",
    "long head": b"HTTP/1.1 200 OK\r\n" + b"".join(b"h%d: %s\r\n" % (n, b"x" * 900) for n in range(400)),
    "long header": b"HTTP/1.1 200 OK\r\nh: " + b"x" * 400_000,
    "many hints": b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 20,
    "length": HALF,
    "chunked": HALF_CHUNKED,
    "half of chunk": HALF_OF_CHUNK,
    "bad chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n",
    "bad length": b"HTTP/1.1 200 OK\r\ncontent-length: -4\r\n\r\nhalf",
    "no last line": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n",
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_response_is_the_error_that_httpx2_gives(name: str) -> None:
    async with raw(once(BROKEN[name])) as server:
        found: list[Outcome] = []
        for which in ("httpx2", "own"):
            async with client_of(which) as client:
                found.append(await outcome(client, server.url))
                await server.all_gone()
        expected, own = found
        assert expected.error is not None
        same(own, expected)


@pytest.mark.one_loop
@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_response_is_the_error_of_a_run_that_httpx2_makes_it(name: str) -> None:
    types: list[type[RunError]] = []
    async with raw(once(BROKEN[name])) as server:
        for options in ({"http_client": foreign}, {}):
            model = OPENAI_CHAT.make(server.url, **options)
            with pytest.raises(RunError) as caught:
                await Agent(model, retry=Retry(attempts=1)).invoke_async("Hello?")
            types.append(type(caught.value))
            await close(model)
    assert types[0] is types[1]
    assert types[0] in (ConnectionFailed, ModelProtocolError, StreamBroken)


@pytest.mark.parametrize("provider", PROVIDERS, ids=str)
@pytest.mark.promise("P3", "P7")
async def test_an_answer_that_breaks_in_the_middle_keeps_what_was_said(provider: Provider) -> None:
    recording = provider.answer
    place = next(index for index, event in enumerate(recording.events) if b"The sky" in event)
    start = head(recording.content_type) + b"".join(chunk(event) for event in recording.events[: place + 1])
    found: list[tuple[type[RunError], str]] = []
    for options in ({"http_client": foreign}, {}):
        async with wire(Play(start, then="close")) as server:
            agent = Agent(provider.make(server.url, **options), retry=Retry(attempts=1))
            with pytest.raises(RunError) as caught:
                await agent.invoke_async("Hello?")
            found.append((type(caught.value), agent.messages[-1].text))
    assert found[0] == found[1]
    assert "The sky" in found[0][1]


RESETS = {"before the head": b"", "in the head": b"HTTP/1.1 200 OK\r\n", "in a body": HALF, "in chunks": HALF_CHUNKED}
RESETS["in a body without a length"] = HALF_TO_CLOSE


@pytest.mark.parametrize("stage", RESETS)
async def test_a_connection_that_is_reset_is_the_error_that_httpx2_gives(stage: str) -> None:
    async def handler(peer: Peer) -> None:
        await peer.request()
        await peer.send(RESETS[stage])
        await passes(30)  # else what was sent before it may be lost
        no_linger = struct.pack("ii", 1, 0)
        peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
        peer.writer.transport.abort()

    found: list[Outcome] = []
    async with raw(handler) as server:
        for which in ("httpx2", "own"):
            async with client_of(which) as client:
                found.append(await outcome(client, server.url))
    assert found[0] == found[1]
    assert found[0].error is httpx2.ReadError


# --- Flow ------------------------------------------------------------------------------------------------------------


async def test_a_reader_that_pauses_holds_up_the_server() -> None:
    total, written = 30_000_000, 0
    piece = b"x" * 100_000

    async def handler(peer: Peer) -> None:
        nonlocal written
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        while written < total:
            peer.writer.write(piece)
            written += len(piece)
            await peer.writer.drain()
        await peer.gone()

    async with (
        raw(handler) as server,
        client_of() as client,
        client.stream("POST", server.url, content=b"{}") as response,
    ):
        body = response.extensions[BODY]
        before = -1
        while written != before:  # until the server can write no more
            before = written
            await asyncio.sleep(0.05)
        assert written < total  # the rest is in its hands, a little of it in the buffers of the kernel
        largest = got = 0
        async for data in body:
            largest, got = max(largest, len(data)), got + len(data)
            assert data == data[:1] * len(data)
        assert got == total
        assert largest < 1_000_000


@each_transport
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("framing", ["length", "close", "cut"])
async def test_a_server_that_has_closed_before_a_paused_reader_goes_on(which: str, framing: str, secure: bool) -> None:
    """All that it sent is read. A body that is too short is no whole one."""
    size = 1_500_000
    length = b"" if framing == "close" else b"content-length: %d\r\n" % (size + (framing == "cut"))
    tls, trusted = tls_pair()
    there = raw(once(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n" + b"x" * size), tls=tls if secure else None)
    async with there as server, client_of(which, certificates=trusted) as client:
        got, error = 0, None
        async with client.stream("POST", server.url, content=b"{}") as response:
            try:
                async for data in response.aiter_raw():
                    got += len(data)
                    await asyncio.sleep(0.005 if got < 600_000 else 0)
            except httpx2.RemoteProtocolError as caught:
                error = type(caught)
        assert got == size
        assert error is (httpx2.RemoteProtocolError if framing == "cut" else None)


@each_transport
async def test_a_large_request_to_a_server_that_reads_slowly_arrives_whole(which: str) -> None:
    content = bytes(range(256)) * (20_000_000 // 256)
    same_content: list[bool] = []

    async def handler(peer: Peer) -> None:
        same_content.append(await peer.request() == content)
        await peer.send(OK)
        await peer.gone()

    async with raw(handler, limit=4096) as server, client_of(which) as client:
        assert (await outcome(client, server.url, content)).body == b"ok"
    assert same_content == [True]


@pytest.mark.parametrize("then", ["close", "wait", "read"])
async def test_an_answer_that_comes_before_the_request_was_read_is_taken(then: str) -> None:
    """The transport of httpx2 takes none before it has written the whole request."""
    refused = b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno"

    async def handler(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(refused)
        if then == "read":
            await peer.gone()
        elif then == "wait":
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await answered.wait()

    answered = asyncio.Event()
    async with raw(handler, limit=4096) as server, client_of() as client:
        found = await outcome(client, server.url, b"x" * 20_000_000)
        answered.set()
        assert (found.status, found.body) == (413, b"no")
        assert found.error is None
        await server.all_gone()


async def test_a_connection_with_half_a_request_in_it_is_not_used_again() -> None:
    """The server has answered without reading the request: what is left of it must not come before the next."""
    refused = b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno"

    async def handler(peer: Peer) -> None:
        if peer.number == 1:
            await peer.reader.readuntil(b"\r\n\r\n")
            await peer.send(refused)
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await answered.wait()
        else:
            await peer.request()
            await peer.send(OK)
            await peer.gone()

    answered = asyncio.Event()
    async with raw(handler, limit=4096) as server, client_of(timeout=1.0) as client:
        assert (await outcome(client, server.url, b"x" * 20_000_000)).status == 413
        found = await outcome(client, server.url)
        answered.set()
        assert (found.error, found.body) == (None, b"ok")


# --- Timeouts --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def full_backlog() -> Iterator[int]:
    """A port that takes no more connections, and does not refuse them."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


async def timed(seconds: float, error: type[Exception], request: Awaitable[Outcome]) -> Outcome:
    start = time.monotonic()
    found = await request
    assert found.error is error
    assert seconds * 0.9 <= time.monotonic() - start < seconds + 3
    return found


@each_transport
async def test_a_connection_that_is_not_taken_in_time(which: str) -> None:
    with full_backlog() as port:
        async with client_of(which, httpx2.Timeout(WITHIN, connect=0.2)) as client:
            await timed(0.2, httpx2.ConnectTimeout, outcome(client, f"http://127.0.0.1:{port}/"))


@each_transport
async def test_a_tls_handshake_that_never_comes(which: str) -> None:
    async def handler(peer: Peer) -> None:
        await peer.gone()

    before = sockets_open()
    async with raw(handler) as server, client_of(which, httpx2.Timeout(WITHIN, connect=0.2)) as client:
        await timed(0.2, httpx2.ConnectTimeout, outcome(client, f"https://127.0.0.1:{server.port}/"))
        await server.all_gone()
    await sockets_back_to(before)


async def never_reading(peer: Peer) -> None:
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.Event().wait()


@each_transport
async def test_a_server_that_does_not_read(which: str) -> None:
    async with raw(never_reading, limit=4096) as server, client_of(which, httpx2.Timeout(WITHIN, write=0.2)) as client:
        await timed(0.2, httpx2.WriteTimeout, outcome(client, server.url, b"x" * 20_000_000))


@each_transport
async def test_a_head_that_never_comes(which: str) -> None:
    async with raw(silent()) as server, client_of(which, httpx2.Timeout(WITHIN, read=0.2)) as client:
        await timed(0.2, httpx2.ReadTimeout, outcome(client, server.url))
        await server.all_gone()


@each_transport
@pytest.mark.parametrize("answer", [HALF, HALF_CHUNKED, HALF_TO_CLOSE], ids=["length", "chunked", "close"])
async def test_a_gap_in_a_body(which: str, answer: bytes) -> None:
    async with raw(silent(answer)) as server, client_of(which, httpx2.Timeout(WITHIN, read=0.2)) as client:
        found = await timed(0.2, httpx2.ReadTimeout, outcome(client, server.url))
        assert found.body == b"half"
        await server.all_gone()


@each_transport
async def test_a_large_request_and_then_no_head(which: str) -> None:
    """The wait for the head is a wait for reading, though there was one for writing before it."""

    async def handler(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    async with raw(handler, limit=4096) as server, client_of(which, 1.0) as client:
        assert (await outcome(client, server.url, b"x" * 20_000_000)).error is httpx2.ReadTimeout


@each_transport
async def test_a_timeout_for_writing_does_not_end_the_wait_for_the_head(which: str) -> None:
    timeout = httpx2.Timeout(None, write=1.0)

    async def handler(peer: Peer) -> None:
        await peer.request()
        await asyncio.sleep(1.3)
        await peer.send(OK)
        await peer.gone()

    async with raw(handler, limit=4096) as server, client_of(which, timeout) as client:
        found = await outcome(client, server.url, b"x" * 20_000_000)
        assert (found.error, found.body) == (None, b"ok")


@each_transport
async def test_gaps_that_are_shorter_than_the_timeout_never_end_a_stream(which: str) -> None:
    async def handler(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(12):
            await asyncio.sleep(0.1)
            await peer.send(chunk(b"on"))
        await peer.send(b"0\r\n\r\n")
        await peer.gone()

    async with raw(handler) as server, client_of(which, httpx2.Timeout(WITHIN, read=0.6)) as client:
        found = await outcome(client, server.url)
        assert (found.error, found.body) == (None, b"on" * 12)


@each_transport
async def test_what_came_in_time_to_a_loop_that_was_busy_is_in_time(which: str) -> None:
    """The bytes were there before the timeout; the loop looked only after it."""
    port, go_on, thread = two_halves()
    url = f"http://127.0.0.1:{port}/"
    try:
        async with client_of(which, httpx2.Timeout(WITHIN, read=0.3)) as client:
            reading = asyncio.create_task(outcome(client, url))
            await asyncio.to_thread(go_on.asked.wait, WITHIN)  # type: ignore[attr-defined]
            for _ in range(200):  # the first half is read, and the reader waits for more
                await asyncio.sleep(0)
            go_on.set()
            time.sleep(0.5)
            found = await reading
            assert (found.error, found.body) == (None, b"half and the rest")
    finally:
        go_on.set()
        await asyncio.to_thread(thread.join, WITHIN)


def two_halves() -> tuple[int, threading.Event, threading.Thread]:
    listener = socket.create_server(("127.0.0.1", 0))
    go_on, asked, go_further = threading.Event(), threading.Event(), threading.Event()

    def run() -> None:
        with listener:
            first, _ = listener.accept()
            with first:
                first.recv(65536)
                first.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\nhalf")
                asked.set()
                go_on.wait(WITHIN)
                first.sendall(b" and")
                go_further.wait(0.7)  # after the loop has looked
                first.sendall(b" the rest")
                first.recv(1)

    go_on.asked = asked  # type: ignore[attr-defined]
    thread = threading.Thread(target=run, name="server")
    thread.start()
    return listener.getsockname()[1], go_on, thread


# --- TLS -------------------------------------------------------------------------------------------------------------


@functools.cache
def tls_pair(*hosts: str, newest: ssl.TLSVersion | None = None) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What the server has, and what the client trusts."""
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if newest is not None:
        server.maximum_version = newest
    authority.issue_cert(*(hosts or ("127.0.0.1", "localhost"))).configure_cert(server)
    trusted = trusting()
    authority.configure_trust(trusted)
    return server, trusted


@each_transport
async def test_tls(which: str) -> None:
    tls, trusted = tls_pair()
    async with raw(always(WHOLE["chunked"][0]), tls=tls) as server, client_of(which, certificates=trusted) as client:
        for _ in range(3):
            found = await outcome(client, server.url)
            assert (found.body, found.error) == (b"hello", None)
        assert (await outcome(client, server.url, b"x" * 3_000_000)).body == b"hello"
        assert server.connections == 1
        assert (await outcome(client, server.url.replace("127.0.0.1", "localhost"))).body == b"hello"


async def test_a_body_over_tls_that_ends_with_the_connection() -> None:
    tls, trusted = tls_pair()
    async with raw(once(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 700_000), tls=tls) as server:
        for which in TRANSPORTS:
            async with client_of(which, certificates=trusted) as client:
                found = await outcome(client, server.url)
                assert (len(found.body), found.error) == (700_000, None)


@pytest.mark.promise("P1", "P5")
async def test_a_stop_closes_a_tls_connection_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tls, trusted = tls_pair()
    monkeypatch.setattr(certificates_module, "certificates", lambda: trusted)
    before = sockets_open()
    recording = OPENAI_CHAT.answer
    place = next(index for index, event in enumerate(recording.events) if b"The sky" in event)
    start = head(recording.content_type) + b"".join(chunk(event) for event in recording.events[: place + 1])
    async with wire(Play(start, then="stall"), otherwise=recording.response, ssl=tls) as server:
        model = OPENAI_CHAT.make(f"https://127.0.0.1:{server.port}", stop_policy="hang_up")
        agent = Agent(model)
        run = agent.start("Hello?")
        async for event in run.events():
            if isinstance(event, TextDelta):
                break
        began = time.perf_counter()
        run.cancel()
        receipt = await run.stopped()
        async with asyncio.timeout(WITHIN):
            await server.all_gone()
        assert server.hang_ups[0] - began < 1
        assert not receipt.still_running
        assert (await agent.invoke_async("Again.")).text == ANSWER
        await close(model)
    await sockets_back_to(before)


async def close(model: object) -> None:
    """Close the connections that a model keeps for the running loop."""
    await model._clients.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("what", ["unknown", "other host", "plain"])
async def test_a_bad_certificate_is_an_error_of_tls(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tls, trusted = tls_pair("other.example")
    if what == "other host":
        monkeypatch.setattr(certificates_module, "certificates", lambda: trusted)
    found: list[type[RunError]] = []
    async with raw(silent(), tls=None if what == "plain" else tls) as server:
        verify = trusted if what == "other host" else trusting()
        for options in ({"http_client": lambda: httpx2.AsyncClient(timeout=2, verify=verify)}, {"timeout": 2}):
            if what == "plain":
                server.handler = plain
            model = OPENAI_CHAT.make(f"https://127.0.0.1:{server.port}", **options)
            with pytest.raises(RunError) as caught:
                await Agent(model, retry=Retry(attempts=1)).invoke_async("Hello?")
            found.append(type(caught.value))
            await close(model)
            await server.all_gone()
    assert found == [TLSFailed, TLSFailed]


async def plain(peer: Peer) -> None:
    """Answer to the beginning of a TLS handshake as a server without TLS does."""
    await peer.reader.read(65536)
    await peer.send(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")


@each_transport
@pytest.mark.parametrize("how", ["plain", "tls 1.3"])
async def test_a_server_that_answers_before_it_is_asked(which: str, how: str) -> None:
    """Some that are overloaded do: they have read nothing when they refuse."""
    await answered_early(which, *(tls_pair() if how == "tls 1.3" else (None, trusting())))


@each_transport
@pytest.mark.one_loop
async def test_a_server_with_tls_1_2_that_answers_before_it_is_asked(which: str) -> None:
    await answered_early(which, *tls_pair(newest=ssl.TLSVersion.TLSv1_2))


async def answered_early(which: str, tls: ssl.SSLContext | None, trusted: ssl.SSLContext) -> None:
    async def handler(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 503 Overloaded\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno")
        await peer.gone()

    async with raw(handler, tls=tls) as server, client_of(which, certificates=trusted) as client:
        found = await outcome(client, server.url)
        assert (found.status, found.body, found.error) == (503, b"no", None)


# --- What is sent ----------------------------------------------------------------------------------------------------


@each_transport
@pytest.mark.one_loop
@pytest.mark.parametrize(
    "header",
    [
        (b"x-a", b"b\nc"),
        (b"x-a", b"b\r\nc: d"),
        (b"x-a", b"b\r"),
        (b"x-a", b"b\x00c"),
        (b"x-a", b" b"),
        (b"x-a", b"b "),
        (b"x-a", b"\tb"),
        (b"x-a", b"b\x0bc"),
        (b"x a", b"b"),
        (b"x-a:", b"b"),
        (b"x\n", b"b"),
        (b"", b"b"),
        (b"x\x7f", b"b"),
    ],
    ids=repr,
)
async def test_an_illegal_header_is_not_sent(which: str, header: tuple[bytes, bytes]) -> None:
    async with raw(always(OK)) as server, client_of(which) as client:
        with pytest.raises(httpx2.LocalProtocolError):
            await client.post(server.url, content=b"{}", headers=[header])
        assert server.connections == 0 or which == "httpx2"
        assert (await client.post(server.url, content=b"{}")).content == b"ok"


async def test_legal_headers_arrive_as_they_are() -> None:
    heads: dict[str, bytes] = {}

    async def handler(peer: Peer) -> None:
        heads[now] = await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(OK)

    async with raw(handler) as server:
        for now in TRANSPORTS:
            async with client_of(now) as client:
                odd = [(b"X-Empty", b""), (b"X-Odd", b"a \t b"), (b"X-Latin", b"\xe9"), (b"!#$%&'*+-.^_`|~", b"1")]
                await client.post(server.url + "?a=b c&d=ä", headers=odd)
    assert heads["own"] == heads["httpx2"]


@each_transport
async def test_a_host_by_address_and_by_name(which: str) -> None:
    async with raw(always(OK), host="::1") as server, client_of(which) as client:
        assert (await outcome(client, server.url)).body == b"ok"
    async with raw(always(OK)) as server, client_of(which) as client:
        assert (await outcome(client, server.url.replace("127.0.0.1", "localhost"))).body == b"ok"


@each_transport
async def test_a_host_that_cannot_be_reached(which: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        urls = [f"http://{host}:{free.getsockname()[1]}/" for host in ("127.0.0.1", "localhost", "[::1]")]
        async with client_of(which) as client:
            for url in (*urls, "http://no-such-host.invalid/"):
                assert (await outcome(client, url)).error is httpx2.ConnectError


async def test_a_host_that_is_no_name_is_the_same_error_as_with_httpx2() -> None:
    found: list[type[BaseException]] = []
    for which in ("httpx2", "own"):
        async with client_of(which) as client:
            with pytest.raises(Exception) as caught:
                await client.post(f"http://{'a' * 64}.invalid/")
            found.append(caught.type)
    assert found[0] is found[1]


async def test_an_address_of_another_kind() -> None:
    async with client_of() as client:
        with pytest.raises(httpx2.UnsupportedProtocol):
            await client.get("ftp://127.0.0.1/")


# --- Stops -----------------------------------------------------------------------------------------------------------

Cutting = Callable[[httpx2.AsyncClient], Awaitable[None]]


@contextlib.asynccontextmanager
async def nothing_left(client: httpx2.AsyncClient) -> AsyncIterator[None]:
    """After the block, the client has the sockets and tasks that it had before, and room for a request."""
    async with raw(always(OK)) as plain_server:
        assert (await outcome(client, plain_server.url)).body == b"ok"
        await asyncio.sleep(0)
        before, tasks = sockets_open(), asyncio.all_tasks()
        yield
        await sockets_back_to(before)
        async with asyncio.timeout(WITHIN):
            while not asyncio.all_tasks() <= tasks:  # asyncio's own that try addresses take a pass or two to end
                await asyncio.sleep(0)
        assert (await outcome(client, plain_server.url)).body == b"ok"


async def cut(client: httpx2.AsyncClient, url: str, when: Awaitable[object], content: bytes = b"{}") -> None:
    """Send a request, and cancel it at some time."""
    task = asyncio.create_task(outcome(client, url, content))
    await when
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def passes(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.promise("P1", "P5")
async def test_a_stop_while_the_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer = threading.Event(), threading.Event()
    look_up = socket.getaddrinfo

    def slow(*args: object, **options: object) -> object:
        if args[0] == "slow.invalid":
            asked.set()
            answer.wait(WITHIN)
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return look_up(*args, **options)  # type: ignore[arg-type]

    if type(asyncio.get_running_loop()).__module__.startswith("uvloop"):
        return  # it has a resolver of its own, which cannot be held up from here
    monkeypatch.setattr(socket, "getaddrinfo", slow)
    async with client_of() as client, nothing_left(client):
        try:
            await cut(client, "http://slow.invalid/", asyncio.to_thread(asked.wait, WITHIN))
        finally:
            answer.set()


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.promise("P1", "P5")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_stop_while_it_connects(host: str) -> None:
    with full_backlog() as port:
        async with client_of() as client, nothing_left(client):
            for number in (0, 1, 2, 3, 5, 10, 200):
                await cut(client, f"http://{host}:{port}/", passes(number))


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.promise("P1", "P5")
async def test_a_stop_in_the_tls_handshake() -> None:
    async def handler(peer: Peer) -> None:
        await peer.reader.read(65536)
        begun.set()
        await peer.gone()

    async with raw(handler) as server, client_of() as client, nothing_left(client):
        for _ in range(3):
            begun = asyncio.Event()
            await cut(client, f"https://127.0.0.1:{server.port}/", begun.wait())
            await server.all_gone()
        before = sockets_open()
    assert sockets_open() <= before


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.promise("P1", "P5")
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_stop_while_the_request_is_written(secure: bool) -> None:
    tls, trusted = tls_pair()

    async def handler(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        begun.set()
        await go_on.wait()
        await peer.gone()

    begun, go_on = asyncio.Event(), asyncio.Event()
    there = raw(handler, tls=tls if secure else None, limit=4096)
    async with there as server, client_of(certificates=trusted) as client, nothing_left(client):
        await cut(client, server.url, begun.wait(), b"x" * 20_000_000)
        go_on.set()
        await server.all_gone()


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.promise("P1", "P5")
@each_transport
async def test_a_stop_after_the_server_has_half_closed_the_connection(which: str) -> None:
    """It will send nothing more, and it does not read: the connection is ended all the same."""

    async def handler(peer: Peer) -> None:
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.writer.write_eof()
        begun.set()
        await asyncio.Event().wait()

    begun = asyncio.Event()
    async with client_of(which) as client, nothing_left(client), raw(handler, limit=4096) as server:
        before = sockets_open()
        task = asyncio.create_task(outcome(client, server.url, b"x" * 20_000_000))
        await begun.wait()
        await passes(50)
        task.cancel()
        await asyncio.wait([task])
        async with asyncio.timeout(2):
            while sockets_open() > before + 1:  # the server's end, which it keeps
                await asyncio.sleep(0.001)


STAGES = {"head": b"", "half a head": b"HTTP/1.1 200 OK\r\n", "body": HALF, "chunks": HALF_CHUNKED}


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.promise("P1", "P5")
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("stage", STAGES)
async def test_a_stop_while_an_answer_is_awaited(stage: str, secure: bool) -> None:
    tls, trusted = tls_pair()

    async def handler(peer: Peer) -> None:
        await peer.request()
        await peer.send(STAGES[stage])
        sent.set()
        await peer.gone()

    there = raw(handler, tls=tls if secure else None)
    async with there as server, client_of(certificates=trusted) as client, nothing_left(client):
        for number in (0, 1, 2, 3, 10):
            sent = asyncio.Event()
            task = asyncio.create_task(outcome(client, server.url))
            await sent.wait()
            await passes(number)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            await server.all_gone()


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.promise("P1", "P5")
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_stop_at_every_pass_of_the_loop(secure: bool) -> None:
    """From before the connection is open until after the end of the response."""
    tls, trusted = tls_pair()
    answer = WHOLE["chunked"][0].replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")
    ended = 0
    there = raw(silent(answer[:70], answer[70:90], answer[90:]), tls=tls if secure else None)
    async with there as server, client_of(certificates=trusted) as client, nothing_left(client):
        for number in range(400):
            task = asyncio.create_task(outcome(client, server.url))
            await passes(number)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                assert task.result().body == b"hello"
                ended += 1
                if ended > 3:
                    break
        assert ended > 3
        await server.all_gone()


@pytest.mark.promise("P1", "P5")
@pytest.mark.parametrize("answer", [HALF, HALF_CHUNKED, HALF_TO_CLOSE], ids=["length", "chunked", "close"])
async def test_closing_a_response_closes_the_connection_without_a_pass_of_the_loop(answer: bytes) -> None:
    """The other side has the end of it when `close()` returns, even if the loop never runs again."""
    async with raw(silent(answer)) as server, client_of() as client:
        request = client.build_request("POST", server.url, content=b"{}")
        response = await client.send(request, stream=True)
        body = response.extensions[BODY]
        assert await anext(body) == b"half"
        (task,) = server.tasks
        body.close()
        body.close()  # twice is once
        for _ in range(3):
            await asyncio.sleep(0)
        await server.all_gone()
        assert task.done()
        with pytest.raises(StopAsyncIteration):
            await anext(body)
        await response.aclose()


@pytest.mark.one_loop  # a socket of uvloop cannot be shut down from here: there it takes a pass of the loop
@pytest.mark.promise("P1", "P5")
async def test_the_other_side_sees_a_stop_before_the_loop_goes_on() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        listener.setblocking(False)
        async with client_of() as client:
            sending = asyncio.create_task(client.send(client.build_request("POST", url_of(listener)), stream=True))
            server, _ = await accept(listener)
            with server:
                server.setblocking(True)
                server.settimeout(WITHIN)
                server.sendall(HALF)
                response = await sending
                body = response.extensions[BODY]
                assert await anext(body) == b"half"
                while server.recv(65536)[-4:] != b"\r\n\r\n":
                    pass
                body.close()
                assert server.recv(1) == b""  # a call that blocks the loop
                await response.aclose()


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}/"


async def accept(listener: socket.socket) -> tuple[socket.socket, object]:
    async with asyncio.timeout(WITHIN):
        while True:
            try:
                return listener.accept()
            except BlockingIOError:
                await asyncio.sleep(0.001)


@pytest.mark.usefixtures("one_at_a_time")
async def test_a_request_that_waits_for_its_turn_can_be_stopped() -> None:
    go_on = asyncio.Event()

    async def handler(peer: Peer) -> None:
        while True:
            await peer.request()
            await go_on.wait()
            await peer.send(OK)

    async with raw(handler) as server, client_of() as client:
        first = asyncio.create_task(outcome(client, server.url))
        await server.until(lambda: server.open == 1)
        await cut(client, server.url, passes(5))
        second = asyncio.create_task(outcome(client, server.url))
        go_on.set()
        assert [(await each).body for each in (first, second)] == [b"ok", b"ok"]
        assert server.connections == 1


# --- Proxies ---------------------------------------------------------------------------------------------------------

PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.usefixtures("no_proxies")
async def test_without_a_proxy_our_own_transport_is_used() -> None:
    model = OPENAI_CHAT.make("http://127.0.0.1:9")
    async with model.new_http_client() as client:
        assert isinstance(client._transport, StreamingTransport)


@pytest.mark.usefixtures("no_proxies")
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_proxy_in_the_environment_is_used(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = OPENAI_CHAT.answer.response
    async with wire(otherwise=answer) as proxy, wire(otherwise=answer) as server:
        monkeypatch.setenv(variable, proxy.url)
        model = OPENAI_CHAT.make(server.url)
        assert (await Agent(model).invoke_async("Hello?")).text == ANSWER
        assert (len(proxy.requests), len(server.requests)) == (1, 0)
        assert proxy.requests[0].path.startswith(server.url)
        await close(model)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        model = OPENAI_CHAT.make(server.url)
        assert (await Agent(model).invoke_async("Hello?")).text == ANSWER
        assert (len(proxy.requests), len(server.requests)) == (1, 1)
        await close(model)


@pytest.mark.usefixtures("no_proxies")
async def test_a_server_that_says_nothing_is_a_timeout_of_the_model() -> None:
    async with raw(silent()) as server:
        model = OPENAI_CHAT.make(server.url, timeout=0.1)
        with pytest.raises(ModelTimeout):
            await Agent(model, retry=Retry(attempts=1)).invoke_async("Hello?")
        await close(model)
