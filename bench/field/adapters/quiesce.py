"""Quiesce. Both tools are plain functions with the default stop policy."""

from __future__ import annotations

from typing import Any

from quiesce import Agent, Run, tool
from quiesce.events import TextDelta
from quiesce.models.providers.openai_chat import OpenAIChat

from ._harness import main
from ._subject import Show, Subject, Tools


class Quiesce(Subject):
    packages = ("quiesce",)
    stopped_with = "run.cancel()"
    imports = "from quiesce import Agent, tool; from quiesce.models.providers.openai_chat import OpenAIChat"
    thread_safe = True

    def __init__(self, url: str, tools: Tools) -> None:
        super().__init__(url, tools)
        self._agent = Agent(OpenAIChat("field", base_url=url, api_key="none"), tools=self._tools())
        self._run: Run | None = None

    def _tools(self) -> list[Any]:
        return [tool(each) for each in self.tools.functions()]

    async def run(self, prompt: str, show: Show) -> None:
        self._run = self._agent.start(prompt)
        async for event in self._run.events():
            if isinstance(event, TextDelta):
                show(event.text)
        await self._run

    def stop(self) -> None:
        assert self._run is not None
        self._run.cancel()

    def history(self) -> Any:
        return repr(self._agent.messages)

    def usage(self) -> str:
        assert self._run is not None
        usage = self._run.usage
        return f"{usage.input}/{usage.output}"


if __name__ == "__main__":
    main(Quiesce)
