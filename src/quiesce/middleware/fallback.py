"""Other models for when one fails."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from ..errors import ConfigurationError, ModelError
from ..events import AnswerEnd, AnswerStart, Delta, UsageDelta
from ..models.base import Model
from ..models.resolve import resolve_model
from .base import Middleware, ModelCall, Send


class FallbackModels(Middleware[Any]):
    """Sends a request to the next of these models when one fails before its first word.

    models   in order, each a `Model` or a name; they come after the agent's own model
    on       the errors that are a reason to go on with the next one; all others end the attempt

    An answer that has begun stays with its model: readers have part of it. When the last model fails too, the run's
    `retry` applies, and begins with the first one again. Each request has its own entry in the ledger, under the name
    of its model. Raises `ConfigurationError` for no models, and `UnknownModel`.
    """

    def __init__(self, *models: Model | str, on: type[ModelError] | tuple[type[ModelError], ...] = ModelError) -> None:
        if not models:
            raise ConfigurationError("FallbackModels() names no model.", todo="Name those to use when one fails.")
        kinds = on if isinstance(on, tuple) else (on,)
        if not all(isinstance(kind, type) and issubclass(kind, ModelError) for kind in kinds):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"on={on!r} makes no sense.", todo="Use kinds of ModelError.")
        self._models: Final = tuple(resolve_model(model) for model in models)
        self._on: Final = kinds

    @asynccontextmanager
    async def model_call(self, call: ModelCall[Any], next: Send[Any], /) -> AsyncGenerator[AsyncIterator[Delta]]:
        """The answer of the first model that begins one."""
        *others, last = (call.model, *self._models)
        for model in others:
            try:
                async with AsyncExitStack() as stack:
                    deltas = await stack.enter_async_context(next(call.replace(model=model)))
                    begun = await _beginning(deltas)
                    kept = stack.pop_all()
            except self._on:  # raised by the model, or while hanging up on one that stalls
                continue
            async with kept:
                yield _joined(begun, deltas)
            return
        async with next(call.replace(model=last)) as deltas:
            yield deltas


async def _beginning(deltas: AsyncIterator[Delta]) -> list[Delta]:
    """The deltas up to the first word, or to the first that tells that there will be none."""
    begun: list[Delta] = []
    async for delta in deltas:
        begun.append(delta)
        if not isinstance(delta, AnswerStart | UsageDelta) or isinstance(delta, AnswerEnd):
            break
    return begun


async def _joined(begun: list[Delta], rest: AsyncIterator[Delta]) -> AsyncGenerator[Delta]:
    for delta in begun:
        yield delta
    async for delta in rest:
        yield delta
