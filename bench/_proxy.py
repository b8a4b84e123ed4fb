"""An HTTP proxy on this machine, in a process of its own. It forwards plain requests, and tunnels TLS (CONNECT)."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, Final

from ._openai import body_of

_END: Final = b"0\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Relay:
    """One connection of a client, with its own connection to the server."""

    def __init__(self, client: Streams, relayed: Any) -> None:
        self._reader, self._writer = client
        self._relayed: Final = relayed
        self._server: Streams | None = None

    async def run(self) -> None:
        try:
            while True:
                head = await self._reader.readuntil(b"\r\n\r\n")
                self._relayed.value += 1
                if head.startswith(b"CONNECT "):
                    await self._tunnel(head.split(b" ")[1])
                    return
                await self._forward(head)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writer.close()
            if self._server is not None:
                self._server[1].close()

    async def _connect(self, address: bytes) -> Streams:
        host, _, port = address.partition(b":")
        self._server = self._server or await asyncio.open_connection(host.decode(), int(port))
        return self._server

    async def _forward(self, head: bytes) -> None:
        """One request and its answer, which ends as a chunked body does."""
        body = await body_of(head, self._reader)
        method, url, rest = head.split(b" ", 2)
        _, _, address, path = url.split(b"/", 3)
        reader, writer = await self._connect(address)
        writer.write(method + b" /" + path + b" " + rest + body)
        data = b""
        while not data.endswith(_END):
            data = await reader.read(65536)
            if not data:
                raise ConnectionError
            self._writer.write(data)

    async def _tunnel(self, address: bytes) -> None:
        """Bytes in both directions until one side has closed."""
        reader, writer = await self._connect(address)
        self._writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        both = {
            asyncio.create_task(_copy(self._reader, writer)),
            asyncio.create_task(_copy(reader, self._writer)),
        }
        _, left = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for each in left:
            each.cancel()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


async def _serve(port: Connection, relayed: Any) -> None:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _Relay((reader, writer), relayed).run()

    server = await asyncio.start_server(relay, "127.0.0.1", 0, limit=2**26)
    port.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _process(port: Connection, relayed: Any) -> None:
    asyncio.run(_serve(port, relayed))


@contextlib.contextmanager
def running_proxy() -> Iterator[tuple[str, Any]]:
    """Start the proxy; gives its address and the number of requests that came through it, and ends it."""
    here, there = multiprocessing.Pipe()
    spawn = multiprocessing.get_context("spawn")
    relayed = spawn.Value("i", 0)
    proxy = spawn.Process(target=_process, args=(there, relayed), daemon=True)
    proxy.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}", relayed
    finally:
        proxy.terminate()
        proxy.join()
