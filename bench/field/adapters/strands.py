"""Strands Agents."""

from __future__ import annotations

from typing import Any

from strands import Agent, tool
from strands.models.openai import OpenAIModel

from ._harness import main
from ._subject import Show, Subject, Tools


class Strands(Subject):
    packages = ("strands-agents", "openai")
    stopped_with = "agent.cancel()"
    imports = "from strands import Agent, tool; from strands.models.openai import OpenAIModel"
    thread_safe = True

    def __init__(self, url: str, tools: Tools) -> None:
        super().__init__(url, tools)
        model = OpenAIModel(client_args={"base_url": url, "api_key": "none"}, model_id="field")
        self._agent = Agent(model=model, tools=[tool(each) for each in self.tools.functions()], callback_handler=None)
        self._result: Any = None

    async def run(self, prompt: str, show: Show) -> None:
        self._result = None
        async for event in self._agent.stream_async(prompt):
            if "data" in event:
                show(event["data"])
            if "result" in event:
                self._result = event["result"]

    def stop(self) -> None:
        self._agent.cancel()

    def history(self) -> Any:
        return self._agent.messages

    def usage(self) -> str:
        if self._result is None:
            return "none"
        usage = self._result.metrics.accumulated_usage
        return f"{usage['inputTokens']}/{usage['outputTokens']}"


if __name__ == "__main__":
    main(Strands)
