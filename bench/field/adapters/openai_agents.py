"""OpenAI Agents SDK, with a session, as its documentation shows for conversations of several turns."""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    RunResultStreaming,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from ._harness import main
from ._subject import Show, Subject, Tools

set_tracing_disabled(True)


class OpenAIAgents(Subject):
    packages = ("openai-agents", "openai")
    stopped_with = "result.cancel(), and the events read to their end"
    imports = "from agents import Agent, Runner, function_tool"

    def __init__(self, url: str, tools: Tools) -> None:
        super().__init__(url, tools)
        model = OpenAIChatCompletionsModel("field", openai_client=AsyncOpenAI(base_url=url, api_key="none"))
        # With usage asked for, as the others do by themselves.
        self._agent = Agent(
            "field",
            model=model,
            tools=[function_tool(each) for each in self.tools.functions()],
            model_settings=ModelSettings(include_usage=True),
        )
        self._session = SQLiteSession("field")  # in memory
        self._result: RunResultStreaming | None = None
        self._stored: Any = None

    async def run(self, prompt: str, show: Show) -> None:
        self._result = Runner.run_streamed(self._agent, prompt, session=self._session)
        async for event in self._result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                show(event.data.delta)
        self._stored = [await self._session.get_items(), self._result.to_input_list()]

    def stop(self) -> None:
        assert self._result is not None
        self._result.cancel()

    def history(self) -> Any:
        return self._stored

    def usage(self) -> str:
        assert self._result is not None
        usage = self._result.context_wrapper.usage
        return f"{usage.input_tokens}/{usage.output_tokens}"


if __name__ == "__main__":
    main(OpenAIAgents)
