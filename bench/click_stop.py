"""From the click on Stop, in a browser, to the provider's connection closed, as the provider sees it.

A provider on loopback streams server-sent events for as long as its connection is open. The server runs a real agent
against it, in a process of its own; the console runs in Chromium. The browser's clock and the provider's are the same
machine's.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from queue import SimpleQueue

CLICKS = 200

# When the click happened in the browser, in seconds since the epoch, with the page's own listeners still to come.
NOTE_CLICK = """() => addEventListener("click", (event) => {
  window.clicked = (performance.timeOrigin + event.timeStamp) / 1000;
}, { capture: true })"""


class Provider:
    """Streams until it is hung up on, and notes when that was."""

    def __init__(self) -> None:
        self.closed: SimpleQueue[float] = SimpleQueue()
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        speaking = asyncio.create_task(_speak(writer))
        try:
            while await reader.read(4096):
                pass
        except ConnectionError:
            pass
        self.closed.put(time.time())
        speaking.cancel()
        writer.transport.abort()


async def _speak(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b'data: {"text": "word "}\n\n')
        await writer.drain()
        await asyncio.sleep(0.01)


# --- The server's process -------------------------------------------------------------------------------------------


def serve(provider_port: int) -> None:
    import httpx2
    import msgspec

    from quiesce import Agent
    from quiesce.events import AnswerStart, Delta, TextDelta
    from quiesce.models.base import ModelRequest
    from quiesce.server.app import create_app
    from quiesce.server.listen import server

    class LoopbackModel:
        name = "loopback"
        price = None

        @asynccontextmanager
        async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
            async with (
                httpx2.AsyncClient() as client,
                client.stream("GET", f"http://127.0.0.1:{provider_port}/") as answer,
            ):
                yield self._deltas(answer)

        async def _deltas(self, answer: httpx2.Response) -> AsyncIterator[Delta]:
            yield AnswerStart()
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    yield TextDelta(msgspec.json.decode(line[6:])["text"])

    async def run() -> None:
        listening = server(create_app(Agent(LoopbackModel())), log_level="error")
        serving = asyncio.create_task(listening.serve())
        while not listening.started:
            await asyncio.sleep(0.01)
        print(listening.servers[0].sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        listening.drain()
        await serving

    asyncio.run(run())


# --- The clicks -----------------------------------------------------------------------------------------------------


def measure(clicks: int) -> list[float]:
    from playwright.sync_api import sync_playwright
    from tests.console.browser import ARGUMENTS, find_chromium

    provider = Provider()
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.click_stop", "serve", str(provider.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    url = f"http://127.0.0.1:{process.stdout.readline().strip()}/"
    times: list[float] = []
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
            page = browser.new_page()
            page.goto(url)
            page.evaluate(NOTE_CLICK)
            for _ in range(clicks):
                page.evaluate("() => { location.hash = '#/'; }")
                page.locator(".list-head").wait_for()
                page.fill("#draft", "go")
                page.keyboard.press("Enter")
                page.locator(".entry.assistant .words", has_text="word word").wait_for()
                page.locator("#stop").click()
                closed = provider.closed.get(timeout=30)
                times.append(closed - page.evaluate("window.clicked"))
                page.locator("#receipt").wait_for()
            browser.close()
    finally:
        process.communicate(timeout=30)
        provider.close()
    return times


def report(times: list[float]) -> str:
    ordered = sorted(times)
    p99 = ordered[max(0, int(len(ordered) * 0.99) - 1)]
    return (
        f"from the click on Stop to the provider's connection closed, {len(times)} clicks: "
        f"median {statistics.median(ordered) * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, worst {ordered[-1] * 1e3:.1f} ms"
    )


def main() -> None:
    from tests.console.browser import find_chromium

    if find_chromium() is None:
        print("NOT MEASURED: there is no chromium here (apt-get install chromium, or set CHROMIUM)")
        return
    print(report(measure(CLICKS)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]))
    else:
        main()
