"""A chat over HTTP: one request streams the answer, another one stops it. Each user has a conversation."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from quiesce import Agent, Run

agent = Agent("openai:gpt-5-mini", store="chat.db")
runs: dict[str, Run[str]] = {}


async def chat(request: Request) -> Response:
    user = request.path_params["user"]
    prompt = (await request.body()).decode()
    run = runs[user] = agent.start(prompt, session=user)
    return StreamingResponse(run.text_stream())


async def stop(request: Request) -> Response:
    runs[request.path_params["user"]].cancel()
    return Response(status_code=202)


app = Starlette(routes=[Route("/chat/{user}", chat, methods=["POST"]), Route("/stop/{user}", stop, methods=["POST"])])
