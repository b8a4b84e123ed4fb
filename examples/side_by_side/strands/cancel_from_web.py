"""A chat over HTTP: one request streams the answer, another one stops it. Each user has a conversation."""

from collections import defaultdict
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from strands import Agent
from strands.models.openai import OpenAIModel

model = OpenAIModel(model_id="gpt-5-mini")
agents: defaultdict[str, Agent] = defaultdict(lambda: Agent(model, callback_handler=None))


async def answer(agent: Agent, prompt: str) -> AsyncIterator[str]:
    async for event in agent.stream_async(prompt):
        if "data" in event:
            yield event["data"]


async def chat(request: Request) -> Response:
    prompt = (await request.body()).decode()
    return StreamingResponse(answer(agents[request.path_params["user"]], prompt))


async def stop(request: Request) -> Response:
    agents[request.path_params["user"]].cancel()
    return Response(status_code=202)


app = Starlette(routes=[Route("/chat/{user}", chat, methods=["POST"]), Route("/stop/{user}", stop, methods=["POST"])])
