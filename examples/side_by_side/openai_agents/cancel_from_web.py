"""A chat over HTTP: one request streams the answer, another one stops it. Each user has a conversation."""

from collections.abc import AsyncIterator

from agents import Agent, Runner, RunResultStreaming, SQLiteSession
from openai.types.responses import ResponseTextDeltaEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

agent = Agent("assistant", model="gpt-5-mini")
runs: dict[str, RunResultStreaming] = {}


async def text_of(run: RunResultStreaming) -> AsyncIterator[str]:
    async for event in run.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            yield event.data.delta


async def chat(request: Request) -> Response:
    user = request.path_params["user"]
    prompt = (await request.body()).decode()
    run = runs[user] = Runner.run_streamed(agent, prompt, session=SQLiteSession(user, "chat.db"))
    return StreamingResponse(text_of(run))


async def stop(request: Request) -> Response:
    runs[request.path_params["user"]].cancel()
    return Response(status_code=202)


app = Starlette(routes=[Route("/chat/{user}", chat, methods=["POST"]), Route("/stop/{user}", stop, methods=["POST"])])
