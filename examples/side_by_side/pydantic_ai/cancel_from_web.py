"""A chat over HTTP: one request streams the answer, another one stops it. Each user has a conversation."""

from collections import defaultdict
from collections.abc import AsyncIterator

from pydantic_ai import Agent, CancellationToken, ModelMessage
from pydantic_ai.exceptions import RunCancelled
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

agent = Agent("openai:gpt-5-mini")
tokens: dict[str, CancellationToken] = {}
histories: defaultdict[str, list[ModelMessage]] = defaultdict(list)


async def answer(user: str, prompt: str) -> AsyncIterator[str]:
    token = tokens[user] = CancellationToken()
    try:
        async with agent.run_stream(prompt, message_history=histories[user], cancellation_token=token) as result:
            async for piece in result.stream_text(delta=True):
                yield piece
            histories[user] = result.all_messages()
    except RunCancelled as stopped:
        histories[user] = stopped.all_messages()


async def chat(request: Request) -> Response:
    prompt = (await request.body()).decode()
    return StreamingResponse(answer(request.path_params["user"], prompt))


async def stop(request: Request) -> Response:
    tokens[request.path_params["user"]].cancel()
    return Response(status_code=202)


app = Starlette(routes=[Route("/chat/{user}", chat, methods=["POST"]), Route("/stop/{user}", stop, methods=["POST"])])
