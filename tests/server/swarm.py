"""Many runs, each with a reader; half of the readers drop at random, the other half's runs are stopped."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass
class Swarm:
    """What became of the runs, as their readers and the server saw it."""

    host: str
    port: int
    count: int
    seed: int = 7
    ended: dict[str, str] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)

    async def request(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """One request on a connection of its own."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(self._head(method, path, b"" if body is None else json.dumps(body).encode(), close=True))
            raw = await reader.read()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        head, _, rest = raw.partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), rest

    def _head(self, method: str, path: str, body: bytes, *, close: bool) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}:{self.port}"]
        lines += ["Connection: close"] if close else []
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"] if body else []
        return "\r\n".join([*lines, "", ""]).encode() + body

    async def start_all(self) -> None:
        """Start the runs, some at a time. The second half ends when its readers go."""
        gate = asyncio.Semaphore(50)

        async def start(number: int) -> str:
            what = "continue" if number < self.count // 2 else "cancel"
            async with gate:
                status, body = await self.request(
                    "POST", "/runs", {"prompt": f"Story {number}", "on_disconnect": what, "disconnect_grace": 60}
                )
            assert status == 201, body
            return json.loads(body)["run"]["id"]

        self.runs = list(await asyncio.gather(*(start(number) for number in range(self.count))))

    async def open_all(self) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A reader for each run that has begun to hear it."""
        gate = asyncio.Semaphore(50)

        async def open_one(run_id: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            async with gate:
                reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 16)
                writer.write(self._head("GET", f"/runs/{run_id}/events", b"", close=False))
                await reader.readuntil(b"event: text")
            return reader, writer

        return list(await asyncio.gather(*(open_one(run_id) for run_id in self.runs)))

    async def finish(self, streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
        """Drop the second half at random moments, and stop the first half; read those to their end."""
        chance = random.Random(self.seed)
        half = self.count // 2
        order = list(range(self.count))
        chance.shuffle(order)

        async def stop(number: int) -> None:
            reader, writer = streams[number]
            status, _ = await self.request("POST", f"/runs/{self.runs[number]}/cancel", {"reason": "swarm"})
            assert status in (200, 202)
            tail = b""
            while b"event: run_ended" not in tail:
                chunk = await reader.read(65536)
                assert chunk, "the stream ended without the run's end"
                tail = (tail + chunk)[-70000:]
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            self.ended[self.runs[number]] = "stopped"

        async def drop(number: int) -> None:
            streams[number][1].transport.abort()
            self.ended[self.runs[number]] = "dropped"

        gate = asyncio.Semaphore(50)

        async def one(number: int) -> None:
            async with gate:
                await (stop(number) if number < half else drop(number))

        await asyncio.gather(*(one(number) for number in order))
