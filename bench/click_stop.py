"""From the click on Stop, in a browser: to "Stopping" on the page, to the receipt on the page, and to the provider's
connection closed, as the provider sees it.

A provider on loopback streams server-sent events for as long as its connection is open. The server runs a real agent
against it; the console runs in Chromium. All are processes of their own, and their clocks are the same machine's.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

CLICKS = 200
CLOSED, STOPPING, RECEIPT = "the provider's connection closed", '"Stopping" on the page', "the receipt on the page"

# When the click happened in the browser, in seconds since the epoch, with the page's own listeners still to come.
# The observer is called at the end of the task that has changed the page.
NOTE_CLICK = """() => {
  addEventListener("click", (event) => {
    window.clicked = (performance.timeOrigin + event.timeStamp) / 1000;
    window.at = event.timeStamp;
    window.took = {};
  }, { capture: true });
  new MutationObserver(() => {
    const state = document.getElementById("state")?.textContent ?? "";
    if (window.took && state.startsWith("Stopping")) window.took.stopping ??= performance.now() - window.at;
    if (window.took && document.getElementById("receipt")) window.took.receipt ??= performance.now() - window.at;
  }).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""


class Provider:
    """Streams until it is hung up on, and notes when that was. In a process of its own: in the one that drives the
    browser, its thread would wait for the interpreter's lock, and that wait would be counted as the server's.
    """

    def __init__(self) -> None:
        self._process = _start("provider")
        self.port = int(self._read())

    def closed(self) -> float:
        """When the next connection was closed, in seconds since the epoch."""
        return float(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def close(self) -> None:
        self._process.communicate(timeout=30)


def _start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.click_stop", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


# --- The provider's process -----------------------------------------------------------------------------------------


async def provide() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
    speaking = asyncio.create_task(_speak(writer))
    try:
        while await reader.read(4096):
            pass
    except ConnectionError:
        pass
    print(time.time(), flush=True)
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
    from quiesce.server.listener import server

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


def measure(clicks: int) -> dict[str, list[float]]:
    """Seconds from each click, by what they lead to."""
    from playwright.sync_api import sync_playwright
    from tests.console.browser import ARGUMENTS, find_chromium

    provider = Provider()
    process = _start("serve", str(provider.port))
    assert process.stdout is not None
    url = f"http://127.0.0.1:{process.stdout.readline().strip()}/"
    times: dict[str, list[float]] = {name: [] for name in (CLOSED, STOPPING, RECEIPT)}
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
            page = browser.new_page()
            page.goto(url)
            page.evaluate(NOTE_CLICK)
            for _ in range(clicks):
                page.evaluate("() => { location.hash = '#/'; window.took = null; }")
                page.locator(".list-head").wait_for()
                page.fill("#draft", "go")
                page.keyboard.press("Enter")
                page.locator(".entry.assistant .words", has_text="word word").wait_for()
                page.locator("#stop").click()
                page.locator("#receipt").wait_for()  # first: a click that is lost fails here, within a time limit
                closed = provider.closed()
                took = page.evaluate("window.took")
                times[CLOSED].append(closed - page.evaluate("window.clicked"))
                times[STOPPING].append(took["stopping"] / 1000)
                times[RECEIPT].append(took["receipt"] / 1000)
            browser.close()
    finally:
        process.communicate(timeout=30)
        provider.close()
    return times


def report(name: str, times: list[float]) -> str:
    ordered = sorted(times)
    p99 = ordered[max(0, int(len(ordered) * 0.99) - 1)]
    return (
        f"from the click on Stop to {name}, {len(times)} clicks: "
        f"median {statistics.median(ordered) * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, worst {ordered[-1] * 1e3:.1f} ms"
    )


def main() -> None:
    from tests.console.browser import find_chromium

    if find_chromium() is None:
        print("NOT MEASURED: there is no chromium here (apt-get install chromium, or set CHROMIUM)")
        return
    for name, times in measure(CLICKS).items():
        print(report(name, times))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]))
    elif sys.argv[1:2] == ["provider"]:
        asyncio.run(provide())
    else:
        main()
