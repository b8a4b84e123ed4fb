"""From `run.cancel()` to the closed connection, as the server sees it; and what many cut streams do to the next ones.

The server is a process of its own that streams an OpenAI answer without end. Both sides read the same clock.

    python -m bench.provider_stops [trials]
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import statistics
import sys
import time
from multiprocessing.connection import Connection

from quiesce import Agent, Run
from quiesce.events import TextDelta
from quiesce.models.providers.openai_chat import OpenAIChat

from ._openai import HEAD, event, read_request, response


async def _rest(reader: asyncio.StreamReader) -> int:
    """How many bytes come until the end, in order or not."""
    count = 0
    try:
        while data := await reader.read(65536):
            count += len(data)
    except ConnectionError:  # what was still on its way to the client makes the end a reset
        pass
    return count


def serve(pipe: Connection) -> None:
    """The server's process: reports when each connection ended, and how many bytes came after its request."""
    word = event({"content": " word"})
    whole = response(200)

    async def flood(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(word)
            await writer.drain()
            await asyncio.sleep(0.002)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                _, body = await read_request(reader)
                if b"whole" in body:
                    writer.write(whole)
                    continue
                writer.write(HEAD)
                talking = asyncio.create_task(flood(writer))
                after = await _rest(reader)
                pipe.send((time.monotonic(), after))
                talking.cancel()
                await asyncio.wait([talking])
                break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=512)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


async def _begin(model: OpenAIChat) -> Run:
    run = Agent(model).start("Go on and on.")
    async for each in run.events():
        if isinstance(each, TextDelta):
            break
    return run


async def _stop(run: Run) -> float:
    asked = time.monotonic()
    run.cancel()
    await run.stopped()
    return asked


async def measure(port: int, pipe: Connection, trials: int) -> None:
    model = OpenAIChat("bench", base_url=f"http://127.0.0.1:{port}/v1", api_key="none")

    async def whole_answers() -> float:
        gc.collect()
        rounds: list[float] = []
        for _ in range(5):
            began = time.process_time()  # not wall time: others may be using the machine
            for _ in range(50):
                await Agent(model).invoke_async("whole")
            rounds.append(50 / (time.process_time() - began))
        return statistics.median(rounds)

    await whole_answers()
    before = await whole_answers()
    waits: list[float] = []
    stray = 0
    for _ in range(trials):
        asked = await _stop(await _begin(model))
        closed, more = await asyncio.to_thread(pipe.recv)
        waits.append((closed - asked) * 1000)
        stray += more
    waits.sort()
    most = waits[int(trials * 0.95)]
    print(f"stop to closed connection, {trials} in a row: ", end="")
    print(f"median {statistics.median(waits):.2f} ms, 95 % {most:.2f} ms, worst {waits[-1]:.2f} ms")
    runs = list(await asyncio.gather(*(_begin(model) for _ in range(200))))
    asked = min(await asyncio.gather(*(_stop(run) for run in runs)))
    ends = [await asyncio.to_thread(pipe.recv) for _ in runs]
    stray += sum(more for _, more in ends)
    last = max(end for end, _ in ends) - asked
    print(f"200 at once: the last connection closed {last * 1000:.1f} ms after the stop")
    print(f"bytes that the server got after the stops: {stray}")
    runs.clear()  # or what is kept of them would be measured too
    after = await whole_answers()
    print(f"whole answers of 200 chunks: {before:.0f} per CPU second before, {after:.0f} after all these stops")


def main(trials: int = 500) -> None:
    """Print the figures."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    try:
        asyncio.run(measure(here.recv(), here, trials))
    finally:
        server.terminate()
        server.join()


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
