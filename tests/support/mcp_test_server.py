"""A real MCP server, made with the SDK: over stdio, or over HTTP on a free port that it prints first."""

from __future__ import annotations

import os
import subprocess
import sys

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("test-server", instructions="Only for tests.")
waiting = anyio.Event()
cancelled = anyio.Event()
cancels: list[int] = []


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def nap(ctx: Context) -> str:
    """Take a moment, and say so."""
    await ctx.report_progress(1, 2, "half way")
    await anyio.sleep(0.002)
    return "slept"


@server.tool()
async def slow(ctx: Context) -> str:
    """Report once, then wait until it is cancelled."""
    try:
        await ctx.report_progress(1, 2, "half way")
        await anyio.sleep_forever()
    finally:
        cancels.append(1)
        cancelled.set()
    return "never"


@server.tool()
async def wait_for_cancel() -> int:
    """Wait until a call of `slow` was cancelled; how many were."""
    with anyio.fail_after(20):
        await cancelled.wait()
    return len(cancels)


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("it broke")


@server.tool()
def die() -> str:
    """End the server in the middle of a call."""
    os._exit(3)


@server.tool()
async def learn(what: str, ctx: Context) -> str:
    """From now on there is one more tool."""
    server.add_tool(lambda: "learnt", name=what, description="New.")
    await ctx.notify_tools_changed()
    return "learnt"


@server.tool()
def picture() -> Image:
    """A picture."""
    return Image(data=b"\x89PNG", format="png")


@server.tool()
def environment(name: str) -> str:
    """An environment variable."""
    return os.environ.get(name, "(unset)")


@server.tool()
def spawn(own_session: bool, own_environment: bool) -> int:
    """Start a process that ignores TERM and outlives the server if it may."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    options = {"start_new_session": own_session, "env": {} if own_environment else None}
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, **options)
    child.stdout.readline()
    return child.pid


@server.tool()
def spawn_detached() -> int:
    """Start a process by a double fork: with a session of its own, no environment, and a parent that has ended."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    launch = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {code!r}], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,"
        " env={}, start_new_session=True)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", launch], stdout=subprocess.PIPE, start_new_session=True, check=True)
    return int(done.stdout)


@server.resource("note://today")
def note() -> str:
    """Today's note."""
    return "Water the plants."


@server.resource("note://{day}/of/{month}")
def note_of(day: str, month: str) -> str:
    """The note of a day."""
    return f"Nothing on {day} {month}."


@server.prompt()
def greet(name: str) -> str:
    """A greeting."""
    return f"Say hello to {name}."


if __name__ == "__main__":
    if "--http" in sys.argv:
        import loopback

        loopback.serve(server.streamable_http_app())
    elif "--deaf" in sys.argv:  # speaks no MCP at all
        sys.stdin.read()
    else:
        server.run("stdio")
