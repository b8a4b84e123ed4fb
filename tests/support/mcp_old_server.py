"""An MCP server of before 2026-07-28, by hand: it asks things of its client, and tells of new tools unasked.

With a file as its argument, it writes every line there that it gets, and its tool `wait` does not answer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

tools = ["ask", "learn", "wait"]
heard = Path(sys.argv[1]).open("a") if len(sys.argv) > 1 else None  # noqa: SIM115


def say(**message: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def hear() -> dict:
    line = sys.stdin.readline()
    if heard is not None:
        heard.write(line)
        heard.flush()
    return json.loads(line) if line else sys.exit(0)


def ask(method: str, params: dict) -> str:
    """What the client answers to a request of ours."""
    say(id="ours", method=method, params=params)
    while True:
        message = hear()
        if message.get("id") == "ours":
            return json.dumps(message.get("result", message.get("error")))


def call(name: str, arguments: dict) -> str:
    if name == "ask":
        return ask(arguments["method"], arguments["params"])
    if name == "learn":
        tools.append("learnt")
        say(method="notifications/tools/list_changed")
    return "done"


capabilities: dict = {}
while True:
    request = hear()
    match request.get("method"):
        case "initialize":
            capabilities = request["params"]["capabilities"]
            say(id=request["id"], result={
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "old", "version": "1"},
                "instructions": json.dumps(capabilities),
            })  # fmt: skip
        case "tools/list":
            listed = [{"name": name, "inputSchema": {"type": "object"}} for name in tools]
            say(id=request["id"], result={"tools": listed})
        case "tools/call" if request["params"]["name"] == "wait":
            pass
        case "tools/call":
            text = call(request["params"]["name"], request["params"].get("arguments") or {})
            say(id=request["id"], result={"content": [{"type": "text", "text": text}]})
        case _ if "id" in request:
            say(id=request["id"], error={"code": -32601, "message": "Method not found"})
