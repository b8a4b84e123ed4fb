"""LangGraph: a chat over HTTP; one request streams the answer, another one stops it. Each user has a thread."""

import asyncio
from collections.abc import AsyncIterator

from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

agent = create_agent("openai:gpt-5-mini", checkpointer=InMemorySaver())
tasks: dict[str, asyncio.Task[None]] = {}


async def answer(user: str, prompt: str) -> AsyncIterator[str]:
    pieces: asyncio.Queue[str | None] = asyncio.Queue()

    async def read() -> None:
        try:
            messages = {"messages": [{"role": "user", "content": prompt}]}
            thread = {"configurable": {"thread_id": user}}
            async for chunk, _ in agent.astream(messages, thread, stream_mode="messages"):
                pieces.put_nowait(chunk.text)
        finally:
            pieces.put_nowait(None)

    tasks[user] = asyncio.create_task(read())
    while (piece := await pieces.get()) is not None:
        yield piece


async def chat(request: Request) -> Response:
    prompt = (await request.body()).decode()
    return StreamingResponse(answer(request.path_params["user"], prompt))


async def stop(request: Request) -> Response:
    tasks[request.path_params["user"]].cancel()
    return Response(status_code=202)


app = Starlette(routes=[Route("/chat/{user}", chat, methods=["POST"]), Route("/stop/{user}", stop, methods=["POST"])])
