"""Microsoft Agent Framework, with a session in memory.

Its way to stop a run in Python is asyncio's: the task that reads the stream is cancelled.
"""

from __future__ import annotations

import asyncio
from typing import Any

from agent_framework import Agent, tool
from agent_framework.openai import OpenAIChatCompletionClient

from ._harness import main
from ._subject import Show, Subject, Tools


class AgentFramework(Subject):
    packages = ("agent-framework-core", "agent-framework-openai", "openai")
    stopped_with = "task.cancel() of the task that reads run(stream=True), with a session"
    imports = "from agent_framework import Agent; from agent_framework.openai import OpenAIChatCompletionClient"

    def __init__(self, url: str, tools: Tools) -> None:
        super().__init__(url, tools)
        client = OpenAIChatCompletionClient("field", base_url=url, api_key="none")
        self._agent = Agent(client, tools=[tool(each, approval_mode="never_require") for each in tools.functions()])
        self._session = self._agent.create_session()
        self._task: asyncio.Task[None] | None = None
        self._usage: Any = None

    async def run(self, prompt: str, show: Show) -> None:
        self._task = asyncio.create_task(self._read(prompt, show))
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    async def _read(self, prompt: str, show: Show) -> None:
        self._usage = None
        stream = self._agent.run(prompt, stream=True, session=self._session)
        async for update in stream:
            show(update.text)
        self._usage = (await stream.get_final_response()).usage_details

    def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()

    def history(self) -> Any:
        return repr(self._session.to_dict())

    def usage(self) -> str:
        if self._usage is None:
            return "none"
        return f"{self._usage['input_token_count']}/{self._usage['output_token_count']}"


if __name__ == "__main__":
    main(AgentFramework)
