"""LangGraph: LangChain's `create_agent`, which makes a graph, with a checkpointer in memory.

The stop is a cancellation of the task that reads `astream`. The graph's own `abort()` exists only in the streaming
protocol v3, which calls itself experimental.
"""

from __future__ import annotations

import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from ._harness import main
from ._subject import Show, Subject, Tools

_THREAD: Any = {"configurable": {"thread_id": "field"}}


class LangGraph(Subject):
    packages = ("langgraph", "langchain", "langchain-openai", "openai")
    stopped_with = "task.cancel() of the task that reads astream(), with a checkpointer"
    imports = "from langchain.agents import create_agent; from langchain_openai import ChatOpenAI"

    def __init__(self, url: str, tools: Tools) -> None:
        super().__init__(url, tools)
        model = ChatOpenAI(model="field", base_url=url, api_key="none", stream_usage=True)
        self._graph = create_agent(model, [tool(each) for each in self.tools.functions()], checkpointer=InMemorySaver())
        self._task: asyncio.Task[None] | None = None

    async def run(self, prompt: str, show: Show) -> None:
        self._task = asyncio.create_task(self._read(prompt, show))
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    async def _read(self, prompt: str, show: Show) -> None:
        said = {"messages": [{"role": "user", "content": prompt}]}
        async for chunk, _ in self._graph.astream(said, _THREAD, stream_mode="messages"):
            if isinstance(chunk, AIMessageChunk):
                show(str(chunk.text))

    def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()

    def _messages(self) -> list[Any]:
        return self._graph.get_state(_THREAD).values.get("messages", [])

    def history(self) -> Any:
        # Finished tools of a step that did not finish are kept beside the messages, as pending writes.
        return [repr(each) for each in (*self._messages(), *self._graph.get_state(_THREAD).tasks)]

    def usage(self) -> str:
        reports = [each.usage_metadata for each in self._messages() if getattr(each, "usage_metadata", None)]
        if not reports:
            return "none"
        return f"{sum(each['input_tokens'] for each in reports)}/{sum(each['output_tokens'] for each in reports)}"


if __name__ == "__main__":
    main(LangGraph)
