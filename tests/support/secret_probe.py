"""What a tool's process can find of the host's secrets: run as a program, or as an MCP server with `mcp`.

It looks for a marker that every planted secret contains, in its own environment, in the environments and command lines
of all processes that it may look at, in the files that it and its ancestors hold open. It prints where it found one.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator

MARKER = "canary-" + "7f3a"  # in two parts, so that this program's own text and arguments do not contain it
_LARGEST = 1_000_000


def found() -> list[str]:
    """The places in which there is a planted secret."""
    marker = MARKER.encode()
    places = [f"env {name}" for name, value in os.environ.items() if MARKER in value]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        places += [f"/proc/{pid}/{name}" for name in ("environ", "cmdline") if marker in _read(f"/proc/{pid}/{name}")]
    for pid in ("self", *_ancestors()):
        places += [path for path in _open_files(pid) if marker in _read(path)]
    return places


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_LARGEST)
    except OSError:
        return b""


def _ancestors() -> Iterator[str]:
    pid = str(os.getppid())
    while pid != "0":
        yield pid
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = file.read().rpartition(b")")[2].split()[1].decode()
        except OSError:
            return


def _open_files(pid: str) -> Iterator[str]:
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for number in numbers:
        path = f"/proc/{pid}/fd/{number}"
        try:
            if stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for
                yield path
        except OSError:
            continue


def serve() -> None:
    """The same as a tool of an MCP server."""
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("probe")

    @server.tool()
    def look() -> str:
        """Look for secrets."""
        return json.dumps(found())

    server.run()


if __name__ == "__main__":
    if sys.argv[1:] == ["mcp"]:
        serve()
    else:
        print(json.dumps(found()))
