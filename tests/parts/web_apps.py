"""Applications for real web servers: a run is started by one request, and stopped by another or with the server.

`flask_app` is for gunicorn, `starlette_app` for uvicorn. Each run appends its receipt to the file BOOK.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from flask import Flask, Response
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from quiesce import AfterRun, Agent
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Answer, Say, ScriptedModel, Stall

BOOK = Path(os.environ["BOOK"])


class Chatty(ScriptedModel):
    """Stalls in its answer to "wait"."""

    def __init__(self) -> None:
        super().__init__(then="Fine.")
        self._stalls: Answer = [Say("Well, "), Stall()]

    def stream(self, request: ModelRequest) -> Any:
        last = request.messages[-1]
        return ScriptedModel(self._stalls if "wait" in getattr(last, "text", "") else "Fine.").stream(request)


def note(event: AfterRun) -> None:
    receipt = event.result.receipt
    cause = None if receipt.cause is None else receipt.cause.source
    line = {"stop_reason": receipt.stop_reason, "cause": cause, "left": receipt.still_running, "process": os.getpid()}
    with BOOK.open("a") as book:
        book.write(json.dumps({**line, "text": event.result.text}) + "\n")


agent = Agent(Chatty(), hooks=[note])

# --- gunicorn -----------------------------------------------------------------------------------------------------

flask_app = Flask(__name__)


@flask_app.get("/ask/<prompt>")
def ask(prompt: str) -> Response:
    """Wait for the answer, in a thread of the server."""
    result = agent(prompt, conversation=None)
    return Response(f"{result.stop_reason}: {result.text}")


@flask_app.get("/active")
def active() -> Response:
    """How many runs have said something."""
    return Response(str(sum(bool(run.messages[-1:]) and run.phase.value == "streaming" for run in agent.active_runs)))


@flask_app.get("/stop")
def stop() -> Response:
    """Stop all runs."""
    return Response(str(len(agent.cancel("the button", arm=False))))


# --- uvicorn ------------------------------------------------------------------------------------------------------


async def stream(request: Request) -> StreamingResponse:
    """The text, while it is written. A client that leaves stops the run."""
    run = agent.start(request.path_params["prompt"], conversation=None)

    async def words() -> AsyncIterator[str]:
        async with run:
            async for text in run.text_stream():
                yield text

    return StreamingResponse(words())


async def stop_all(_: Request) -> PlainTextResponse:
    """Stop all runs."""
    return PlainTextResponse(str(len(agent.cancel("the button", arm=False))))


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    yield
    for run in agent.cancel("The server is shutting down", source="shutdown", arm=False):
        await run.stopped()


starlette_app = Starlette(routes=[Route("/stream/{prompt}", stream), Route("/stop", stop_all)], lifespan=lifespan)
