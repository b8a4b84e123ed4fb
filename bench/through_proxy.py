"""A turn with a tool through an HTTP proxy on this machine, beside the bare clients through the same proxy.

python -m bench.through_proxy [turns] [rounds]
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import statistics
import sys
from multiprocessing.connection import Connection
from typing import Any

from . import tool_turns
from ._openai import read_request

END = b"0\r\n\r\n"


def run_proxy(port: Connection, relayed: Any) -> None:
    """The proxy's process: one request at a time for each connection, each with its own connection to the server."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while True:
                head, body = await read_request(reader)
                relayed.value += 1
                method, url, rest = head.split(b" ", 2)
                _, _, address, path = url.split(b"/", 3)
                host, _, number = address.partition(b":")
                upstream = upstream or await asyncio.open_connection(host.decode(), int(number))
                upstream[1].write(method + b" /" + path + b" " + rest + body)
                data = b""
                while not data.endswith(END):
                    data = await upstream[0].read(65536)
                    if not data:
                        return
                    writer.write(data)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            if upstream is not None:
                upstream[1].close()

    async def main() -> None:
        server = await asyncio.start_server(relay, "127.0.0.1", 0, limit=2**26)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def main(turns: int = 20, rounds: int = 9) -> None:
    """Print the figures."""
    here, there = multiprocessing.Pipe()
    spawn = multiprocessing.get_context("spawn")
    relayed = spawn.Value("i", 0)
    proxy = spawn.Process(target=run_proxy, args=(there, relayed), daemon=True)
    proxy.start()
    server, url = tool_turns.run_server()
    before = os.environ.get("HTTP_PROXY")
    os.environ["HTTP_PROXY"] = f"http://127.0.0.1:{here.recv()}"  # as people set it; all three clients read it
    try:
        taken = asyncio.run(tool_turns.measure(url, turns, rounds))
    finally:
        if before is None:
            del os.environ["HTTP_PROXY"]
        else:
            os.environ["HTTP_PROXY"] = before
        for process in (server, proxy):
            process.terminate()
            process.join()
    assert relayed.value >= 3 * rounds * turns  # nobody went past it
    print(f"a run of {turns} turns through a proxy, {rounds} rounds; per turn")
    for name, spent in taken.items():
        cpu = [each / turns * 1e3 for each, _ in spent]
        ratio = tool_turns.ratio_to_lines(taken, name)
        print(f"  {name:22} {min(cpu):6.2f} {statistics.median(cpu):6.2f} ms CPU   {ratio:5.2f} of the first")


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
