"""Agno, with a database in memory and its history in the context."""

from __future__ import annotations

import uuid
from typing import Any

from agno.agent import Agent, RunContentEvent, RunOutput
from agno.db.in_memory import InMemoryDb
from agno.models.openai import OpenAIChat

from ._harness import main
from ._subject import Show, Subject, Tools


class Agno(Subject):
    packages = ("agno", "openai")
    stopped_with = "agent.cancel_run(run_id)"
    imports = "from agno.agent import Agent; from agno.models.openai import OpenAIChat"
    thread_safe = True

    def __init__(self, url: str, tools: Tools) -> None:
        super().__init__(url, tools)
        self._agent = Agent(
            model=OpenAIChat(id="field", base_url=url, api_key="none"),
            tools=self.tools.functions(),
            db=InMemoryDb(),
            session_id="field",
            add_history_to_context=True,
            telemetry=False,
        )
        self._run_id = ""
        self._output: RunOutput | None = None

    async def run(self, prompt: str, show: Show) -> None:
        self._output = None
        self._run_id = str(uuid.uuid4())  # so that the run can be stopped before its first event
        events = self._agent.arun(prompt, run_id=self._run_id, stream=True, stream_events=True, yield_run_output=True)
        async for event in events:
            if isinstance(event, RunOutput):
                self._output = event
            elif isinstance(event, RunContentEvent):
                show(str(event.content or ""))

    def stop(self) -> None:
        self._agent.cancel_run(self._run_id)

    def history(self) -> Any:
        session = self._agent.get_session(session_id="field")
        return repr(session.runs) if session else ""

    def usage(self) -> str:
        metrics = self._output.metrics if self._output else None
        return f"{metrics.input_tokens}/{metrics.output_tokens}" if metrics else "none"


if __name__ == "__main__":
    main(Agno)
