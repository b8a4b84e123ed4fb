"""`check_model`: whether a model keeps the protocol that the run relies on."""

from __future__ import annotations

import asyncio
from typing import Final

from ..conversation.answer import AnswerBuilder
from ..errors import ModelProtocolError
from ..messages import Text, UserMessage
from ..models.base import Model, ModelRequest

_GREETING: Final = ModelRequest((UserMessage((Text("Say hello."),)),))
_TIMEOUT: Final = 5.0
# Seconds for each answer. Some models think for minutes.
_ANSWER_TIMEOUT: Final = 600.0


async def check_model(model: Model, request: ModelRequest = _GREETING) -> None:
    """Send a request three times: read to its end, left after the first delta, and cancelled during the answer.

    Raises `ModelProtocolError` when the deltas make no sense, when an answer has no end or takes over ten minutes,
    when leaving the context takes long, or when a cancellation is swallowed. Sends three real requests.
    """
    for check in (_read_to_the_end, _leave_early, _cancel):
        limit = asyncio.timeout(_ANSWER_TIMEOUT)
        try:
            async with limit:
                await check(model, request)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ModelProtocolError(f"{model.name} did not answer within {_ANSWER_TIMEOUT:g} s.") from None


async def _read_to_the_end(model: Model, request: ModelRequest) -> None:
    builder = AnswerBuilder()
    async with model.stream(request) as deltas:
        async for delta in deltas:
            builder.add(delta)
    if not builder.complete:
        raise ModelProtocolError(f"{model.name} ended without an AnswerEnd.")
    if not builder.content():
        raise ModelProtocolError(f"{model.name} answered with nothing.")


async def _leave_early(model: Model, request: ModelRequest) -> None:
    limit = asyncio.timeout(None)
    try:
        async with limit, model.stream(request) as deltas:
            async for _ in deltas:
                break
            limit.reschedule(asyncio.get_running_loop().time() + _TIMEOUT)
    except TimeoutError:
        if not limit.expired():
            raise
        raise ModelProtocolError(f"{model.name} did not close within 5 s of being left.") from None


async def _cancel(model: Model, request: ModelRequest) -> None:
    under_way = asyncio.Event()

    async def read() -> None:
        async with model.stream(request) as deltas:
            async for _ in deltas:
                under_way.set()
                await asyncio.get_running_loop().create_future()  # a slow reader, which is then cancelled

    task = asyncio.create_task(read())
    task.add_done_callback(lambda _: under_way.set())
    try:
        await under_way.wait()
    finally:
        task.cancel()
    await asyncio.wait({task}, timeout=_TIMEOUT)
    if not task.done():
        raise ModelProtocolError(f"{model.name} did not end within 5 s of being cancelled.")
    if not task.cancelled():
        raise ModelProtocolError(f"{model.name} swallowed its cancellation, or raised instead: {task.exception()!r}.")
