"""AutoGen: an `AssistantAgent` that streams, stopped with the `CancellationToken` that `run_stream` takes."""

from __future__ import annotations

import asyncio
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core import CancellationToken
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

from .. import prompts
from ._harness import main
from ._subject import Show, Subject, Tools


class AutoGen(Subject):
    packages = ("autogen-agentchat", "autogen-ext", "openai")
    stopped_with = "CancellationToken.cancel()"
    imports = (
        "from autogen_agentchat.agents import AssistantAgent; "
        "from autogen_ext.models.openai import OpenAIChatCompletionClient"
    )

    def __init__(self, url: str, tools: Tools) -> None:
        super().__init__(url, tools)
        info = ModelInfo(
            vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False
        )
        client = OpenAIChatCompletionClient(
            model="field",
            base_url=url,
            api_key="none",
            model_info=info,
            stream_options={"include_usage": True},
        )
        self._client = client
        self._agent = AssistantAgent(
            "field",
            client,
            tools=tools.functions(),
            system_message=None,
            model_client_stream=True,
            max_tool_iterations=prompts.TURN_COUNT + 2,
        )
        self._token = CancellationToken()

    async def run(self, prompt: str, show: Show) -> None:
        self._token = CancellationToken()
        try:
            async for event in self._agent.run_stream(task=prompt, cancellation_token=self._token):
                if isinstance(event, ModelClientStreamingChunkEvent):
                    show(event.content)
        except asyncio.CancelledError:
            if not self._token.is_cancelled():
                raise

    def stop(self) -> None:
        self._token.cancel()

    def history(self) -> Any:
        return repr(self._agent._model_context._messages)  # `get_messages` may be asked for in a loop only

    def usage(self) -> str:
        used = self._client.total_usage()
        return f"{used.prompt_tokens}/{used.completion_tokens}"


if __name__ == "__main__":
    main(AutoGen)
