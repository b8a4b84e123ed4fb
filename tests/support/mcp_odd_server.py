"""A stdio MCP server of before 2026-07-28, by hand, that misbehaves in the way that its argument names."""

from __future__ import annotations

import json
import os
import subprocess
import sys

manner = sys.argv[1]
names = ["add", "big", "bye", "content", "deafen", "die", "endless", "hush", "log", "rename", "spawn", "wait"]


def say(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(words: str) -> dict:
    return {"content": [{"type": "text", "text": words}]}


def tools(cursor: str | None) -> dict:
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    match manner:
        case "pages":
            here = int(cursor or 0)
            page = {"tools": listed[here : here + 2]}
            return page if here + 2 >= len(listed) else {**page, "nextCursor": str(here + 2)}
        case "endless pages":
            return {"tools": listed, "nextCursor": "again"}
        case "odd names":
            odd = ["a.b", "a_b", "x" * 70 + "1", "x" * 70 + "2", "猫", ""]
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in odd]}
        case "twice":
            return {"tools": listed * 2}
        case "nonsense":
            return {"tools": [{"name": "no schema"}]}
    return {"tools": listed}


def call(request: dict) -> None:
    name, arguments, number = request["params"]["name"], request["params"].get("arguments") or {}, request["id"]
    token = request["params"]["_meta"]["progressToken"]
    match name:
        case "big":
            say(id=number, result=text("x" * arguments["size"]))
        case "bye":  # the answer, and the end in the same breath
            say(id=number, result=text("x" * 3_000_000))
            os._exit(0)
        case "content":
            say(id=number, result=arguments)
        case "deafen":
            os.close(0)
            say(method="notifications/progress", params={"progressToken": token, "progress": 1})
            subprocess.run(["sleep", "600"], check=False)
        case "die":
            os._exit(3)
        case "endless":
            while True:
                sys.stdout.write("x" * 1_000_000)
        case "hush":
            os.close(1)
            subprocess.run(["sleep", "600"], check=False)
        case "log":
            say(method="notifications/message", params={"level": "warning", "data": {"disk": "full"}})
            say(id=number, result=text("logged"))
        case "rename":
            names[:] = ["", "fresh"]
            say(method="notifications/tools/list_changed")
            say(id=number, result=text("renamed"))
        case "spawn":
            child = subprocess.Popen(["sleep", "600"], start_new_session=True)
            say(id=number, result=text(str(child.pid)))
        case "wait":
            say(method="notifications/progress", params={"progressToken": token, "progress": 1})
        case _:
            say(id=number, result=text("2"))


if manner == "crash":
    raise RuntimeError("there is no such module")
if manner == "chatter":
    print("Welcome!\n\x00 {not json", flush=True)
for line in sys.stdin:
    request = json.loads(line)
    match request.get("method"):
        case "initialize" if manner == "die early":
            os._exit(7)
        case "initialize":
            version = "1999-01-01" if manner == "other times" else "2025-06-18"
            say(id=request["id"], result={
                "protocolVersion": version,
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "odd", "version": "1"},
            })  # fmt: skip
        case "tools/list" if manner != "no list":
            say(id=request["id"], result=tools((request.get("params") or {}).get("cursor")))
        case "tools/call":
            call(request)
        case "notifications/cancelled":  # too late: it answers all the same
            say(id=request["params"]["requestId"], result=text("late"))
        case "server/discover":
            say(id=request["id"], error={"code": -32601, "message": "Method not found"})
