"""The coding agent of examples/coding_agent in a process of its own: `python -m tests.examples.coding_site FD DATA`.

The model plays the script that is its prompt: a JSON list of answers, each a text or a list of calls, as a tool's name
and its arguments. An edit waits while there is a pipe DATA/<user>.gate, until the pipe's other end is closed.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn

from quiesce.events import Delta
from quiesce.messages import AssistantMessage, UserMessage
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Call, Say, ScriptedModel, Stall, Step
from quiesce.tools.builtin.folder import Folder

from .coding_client import USERS

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "coding_agent"))
from app import make_app


class PromptPlayer(ScriptedModel):
    """Plays the script in the prompt, from the answer that the conversation has come to."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        messages = request.messages
        last = max(number for number, each in enumerate(messages) if isinstance(each, UserMessage))
        turn = sum(isinstance(each, AssistantMessage) for each in messages[last:])
        prompt = messages[last]
        assert isinstance(prompt, UserMessage)
        answers: list[Any] = json.loads(prompt.text)
        answer = answers[turn] if turn < len(answers) else "Done."
        async with ScriptedModel(_steps(answer, f"c{len(messages)}")).stream(request) as deltas:
            yield deltas


def _steps(answer: Any, call_id: str) -> list[Step]:
    if answer == "stall":
        return [Say("I think about it. "), Stall()]
    if isinstance(answer, str):
        return [Say(answer)]
    return [Call(name, arguments, f"{call_id}_{number}") for number, (name, arguments) in enumerate(answer)]


def _slow_edits() -> None:
    replace = Folder.replace

    def wait_and_replace(self: Folder, path: str, content: bytes, mode: int | None) -> tuple[str, ...]:
        gate = Path(f"{self.root}.gate")
        if gate.exists():
            gate.read_bytes()
        return replace(self, path, content, mode)

    Folder.replace = wait_and_replace  # type: ignore[method-assign]


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    _slow_edits()
    app = make_app(Path(sys.argv[2]), USERS, PromptPlayer(name="script"))
    config = uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=5)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
