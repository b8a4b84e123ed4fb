"""Google ADK, with its own model class for OpenAI's protocol and a session in memory.

The stop is the `abort_signal` that `Runner.run_async` takes, the way of ADK's own server; the events are then read to
their end.
"""

from __future__ import annotations

import asyncio
from typing import Any

from google.adk.agents import Agent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.integrations.openai import OpenAILlm
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from ._harness import main
from ._subject import Show, Subject, Tools

_SESSION: Any = {"app_name": "field", "user_id": "field", "session_id": "field"}


class GoogleADK(Subject):
    packages = ("google-adk", "openai")
    stopped_with = "the abort_signal of run_async(), and the events read to their end"
    imports = "from google.adk.agents import Agent; from google.adk.integrations.openai import OpenAILlm"
    config = RunConfig(streaming_mode=StreamingMode.SSE)

    def __init__(self, url: str, tools: Tools) -> None:
        super().__init__(url, tools)
        model = OpenAILlm(model="field", base_url=url, api_key="none")
        agent = Agent(name="field_agent", model=model, tools=tools.functions())
        self._sessions = InMemorySessionService()
        self._runner = Runner(app_name="field", agent=agent, session_service=self._sessions)
        self._abort = asyncio.Event()
        self._stored: Any = None
        self._usage: Any = None

    async def run(self, prompt: str, show: Show) -> None:
        self._abort, self._usage = asyncio.Event(), None
        if await self._sessions.get_session(**_SESSION) is None:
            await self._sessions.create_session(**_SESSION)
        events = self._runner.run_async(
            user_id="field",
            session_id="field",
            new_message=types.UserContent(prompt),
            run_config=self.config,
            abort_signal=self._abort,
        )
        async for event in events:
            self._usage = event.usage_metadata or self._usage
            if event.partial:  # the whole text comes once more at the end
                show("".join(part.text or "" for part in event.content.parts))
        self._stored = await self._sessions.get_session(**_SESSION)

    def stop(self) -> None:
        self._abort.set()

    def history(self) -> Any:
        return repr(self._stored)

    def usage(self) -> str:
        if self._usage is None:
            return "none"
        return f"{self._usage.prompt_token_count}/{self._usage.candidates_token_count}"


if __name__ == "__main__":
    main(GoogleADK)
