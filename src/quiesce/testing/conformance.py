"""Is this a model that the loop can rely on? For people who write their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ..conversation.answer import AnswerBuilder
from ..errors import ModelProtocolError
from ..messages import Text, UserMessage
from ..models.base import Model, ModelRequest

_GREETING: Final = ModelRequest((UserMessage((Text("Say hello."),)),))
_PATIENCE: Final = 5.0


async def check_model(model: Model, request: ModelRequest = _GREETING) -> None:
    """Play a request three times: to its end, left after the first delta, and cancelled while it is under way.

    Raises `ModelProtocolError` when the deltas make no sense, when the answer has no end, when leaving the context
    takes long, or when a cancellation is swallowed. Sends three real requests.
    """
    await _play_to_the_end(model, request)
    await _bounded(lambda: _leave_early(model, request), "did not let go within 5 s of being left")
    await _cancel(model, request)


async def _play_to_the_end(model: Model, request: ModelRequest) -> None:
    draft = AnswerBuilder()
    async with model.stream(request) as deltas:
        async for delta in deltas:
            draft.add(delta)
    if not draft.complete:
        raise ModelProtocolError(f"{model.name} ended without an AnswerEnd.")
    if not draft.content():
        raise ModelProtocolError(f"{model.name} answered with nothing.")


async def _leave_early(model: Model, request: ModelRequest) -> None:
    async with model.stream(request) as deltas:
        async for _ in deltas:
            break


async def _cancel(model: Model, request: ModelRequest) -> None:
    under_way = asyncio.Event()

    async def play() -> None:
        async with model.stream(request) as deltas:
            async for _ in deltas:
                under_way.set()
                await asyncio.get_running_loop().create_future()  # a reader that is slow, and is then cancelled

    task = asyncio.create_task(play())
    await asyncio.wait({task, asyncio.ensure_future(under_way.wait())}, return_when=asyncio.FIRST_COMPLETED)
    task.cancel()
    await asyncio.wait({task}, timeout=_PATIENCE)
    if not task.done():
        raise ModelProtocolError(f"{model.name} did not end within 5 s of being cancelled.")
    if not task.cancelled():
        raise ModelProtocolError(f"{model.name} swallowed its cancellation, or raised instead: {task.exception()!r}.")


async def _bounded(play: Callable[[], Awaitable[None]], complaint: str) -> None:
    try:
        async with asyncio.timeout(_PATIENCE):
            await play()
    except TimeoutError:
        raise ModelProtocolError(f"The model {complaint}.") from None
