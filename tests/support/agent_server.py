"""An agent of ours as an MCP server, in a process of its own. What its runs left is written to a file, line by line."""

from __future__ import annotations

import asyncio
import json
import sys

from quiesce import Agent, tool
from quiesce.hooks import AfterRun
from quiesce.models.scripted import Call, Say, ScriptedModel
from quiesce.protocols.mcp_server import AgentServer, serve


@tool
async def wait_for_ever() -> str:
    """Wait."""
    await asyncio.Event().wait()
    return "never"


@tool(requires_approval=True)
def pay() -> str:
    """Pay somebody."""
    return "paid"


class Route:
    """One scripted model for each prompt."""

    name, price = "route", None

    def stream(self, request):
        prompt = request.messages[-1].text if hasattr(request.messages[-1], "text") else ""
        prompts = sum(type(message).__name__ == "UserMessage" for message in request.messages)
        answer = [Say("Waiting. "), Call("wait_for_ever")] if "wait" in prompt else [Say(f"Answer {prompts}.")]
        if prompt == "pay":
            answer = [Say("Paying. "), Call("pay")]
        return ScriptedModel(answer).stream(request)


def make(path: str) -> Agent:
    def note(event: AfterRun) -> None:
        cause = event.result.receipt.cause
        line = {"stop_reason": event.result.stop_reason, "cause": cause.source if cause else None,
                "calls": [line.outcome for line in event.result.receipt.calls]}  # fmt: skip
        with open(path, "a") as file:
            file.write(json.dumps(line) + "\n")

    return Agent(Route(), tools=[wait_for_ever, pay], hooks=[note], name="helper")


if __name__ == "__main__":
    if "--serve" in sys.argv:
        port = int(sys.argv[-1])
        serve(make(sys.argv[1]), transport="http" if port else "stdio", port=port)
        sys.exit()
    server = AgentServer(make(sys.argv[1]))
    if "--http" in sys.argv:
        import loopback

        loopback.serve(server.http_app())
    else:
        asyncio.run(server.run_stdio())
