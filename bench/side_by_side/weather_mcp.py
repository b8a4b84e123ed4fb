"""An MCP server over stdio with one tool. Standard library only: some clients wait five seconds for its start."""

from __future__ import annotations

import json
import sys
from typing import Any

FORECAST = {
    "name": "forecast",
    "description": "The weather in a town.",
    "inputSchema": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
}


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request, or None for a method that this server does not have."""
    match method:
        case "initialize":
            about = {"name": "weather", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
        case "ping":
            return {}
        case "tools/list":
            return {"tools": [FORECAST]}
        case "tools/call":
            return {"content": [{"type": "text", "text": f"rain in {params['arguments']['town']}"}]}
        case _:
            return None


def main() -> None:
    """Answer each request that comes on stdin."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue  # a notification
        result = result_of(message["method"], message.get("params") or {})
        missing = {"code": -32601, "message": "Method not found"}
        outcome = {"error": missing} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)


if __name__ == "__main__":
    main()
