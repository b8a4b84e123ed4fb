"""Pydantic AI, with a cancellation token; what `RunCancelled` keeps is the history of the next prompt.

It goes through `repair_messages`, as Pydantic AI's error says when a tool call of the history has no result.
"""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent, CancellationToken
from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.messages import ModelMessage, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta, repair_messages
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from ._harness import main
from ._subject import Show, Subject, Tools


class PydanticAI(Subject):
    packages = ("pydantic-ai-slim", "openai")
    stopped_with = "CancellationToken.cancel(), next prompt with repair_messages(RunCancelled.all_messages())"
    imports = "from pydantic_ai import Agent; from pydantic_ai.models.openai import OpenAIChatModel"
    thread_safe = True

    def __init__(self, url: str, tools: Tools) -> None:
        super().__init__(url, tools)
        model = OpenAIChatModel("field", provider=OpenAIProvider(base_url=url, api_key="none"))
        self._agent = Agent(model)
        self._add_tools()
        self._token = CancellationToken()
        self._messages: list[ModelMessage] = []
        self._usage: Any = None

    def _add_tools(self) -> None:
        @self._agent.tool_plain
        def quick() -> str:
            """Be quick."""
            return self.tools.quick()

        @self._agent.tool_plain
        def slow() -> str:
            """Take your time."""
            return self.tools.slow()

    async def run(self, prompt: str, show: Show) -> None:
        async def on_events(_: Any, events: Any) -> None:
            async for event in events:
                match event:
                    case PartStartEvent(part=TextPart(content=text)):
                        show(text)
                    case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                        show(text)
                    case _:
                        pass

        self._token = CancellationToken()
        try:
            result = await self._agent.run(
                prompt,
                message_history=self._messages,
                event_stream_handler=on_events,
                cancellation_token=self._token,
            )
        except RunCancelled as stopped:
            self._messages, self._usage = list(repair_messages(stopped.all_messages())), stopped.usage
        else:
            self._messages, self._usage = result.all_messages(), result.usage

    def stop(self) -> None:
        self._token.cancel()

    def history(self) -> Any:
        return [repr(message) for message in self._messages]

    def usage(self) -> str:
        usage = self._usage() if callable(self._usage) else self._usage
        return f"{usage.input_tokens}/{usage.output_tokens}"


if __name__ == "__main__":
    main(PydanticAI)
