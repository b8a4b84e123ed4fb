"""A server that asks a person in the middle of a call: the call is taken back, and made again with the answer.

A call that waited would hold a task and a server for as long as a person takes, and could not outlive a restart. So the
question becomes an interrupt like any other. When the call is made again, the server asks again, and is answered from
what was given.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from ..cancellation import BoundedShield
from ..errors import ToolError
from ..tools.output import as_json

_T = TypeVar("_T")
# How long a call may take to tell the server that it is off.
_TAKING_BACK: Final = 1.0
_current: Final[ContextVar[AskingCall | None]] = ContextVar("quiesce_mcp_call", default=None)


class Asked(ToolError):
    """The server asks what nobody has answered yet. `name` tells the question from others of the call."""

    def __init__(self, name: str, reason: dict[str, Any]) -> None:
        super().__init__("The server asks a person.")
        self.name: Final = name
        self.reason: Final = reason


class AskingCall:
    """One attempt of a call, made in the event loop of the connection. `answers` are those of earlier questions."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._answers: Final = answers
        self._times: Final[Counter[str]] = Counter()
        self._over: Final = asyncio.Event()
        self._asked: Final[asyncio.Future[Asked]] = asyncio.get_running_loop().create_future()

    async def make(self, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Make the call. Raises `Asked` for a question without an answer; the server is told that it is off then."""
        _current.set(self)
        work = asyncio.create_task(call(), name="quiesce mcp call that may ask")
        shield = BoundedShield("taking a call back")
        try:
            await asyncio.wait((work, self._asked), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            raise self._asked.result()
        finally:
            work.cancel()
            await shield.wait((work,), seconds=_TAKING_BACK)
            self._over.set()
            if shield.interrupted:
                raise asyncio.CancelledError

    async def answer(self, params: Any) -> Any:
        """What the server is told: the answer that was given; else nothing until the call is over."""
        import mcp_types

        reason = _reason(params)
        question = hashlib.sha256(as_json(reason).encode()).hexdigest()[:8]
        self._times[question] += 1  # asked again because the answer did not do: that is another question
        name = f"elicitation-{question}-{self._times[question]}"
        if name in self._answers:
            return _result(self._answers[name], reason)
        if not self._asked.done():
            self._asked.set_result(Asked(name, reason))
        await self._over.wait()
        return mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message="The call was cancelled to ask a person")


class Elicitation:
    """The questions of one connection, each brought to the call that it belongs to.

    An old server on a pipe does not say which of its calls asks, so there it has one call at a time.
    """

    def __init__(self, *, on_a_pipe: bool) -> None:
        self._on_a_pipe: Final = on_a_pipe
        self._turn: Final = asyncio.Lock()
        self._only_call: AskingCall | None = None

    async def make(self, client: Any, call: Callable[[], Coroutine[Any, Any, _T]], answers: Mapping[str, Any]) -> _T:
        """Make a call that may ask. Raises `Asked`."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        asking = AskingCall(answers)
        if not self._on_a_pipe or client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return await asking.make(call)
        async with self._turn:
            self._only_call = asking
            try:
                return await asking.make(call)
            finally:
                self._only_call = None

    async def hear(self, context: Any, params: Any) -> Any:
        """What the SDK's client calls with each question."""
        import mcp_types

        del context
        call = _current.get() or self._only_call
        if call is None:
            return mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message="Only a tool that is called can ask")
        return await call.answer(params)


def _reason(params: Any) -> dict[str, Any]:
    if params.mode == "url":
        return {"message": params.message, "url": params.url}
    return {"message": params.message, "schema": params.requested_schema}


def _result(answer: Any, reason: dict[str, Any]) -> Any:
    from mcp_types import ElicitResult

    if answer is False:
        return ElicitResult(action="decline")
    if answer is None:
        return ElicitResult(action="cancel")
    if "url" in reason:
        return ElicitResult(action="accept")
    return ElicitResult(action="accept", content=_fields(answer, reason["schema"].get("properties", {})))


def _fields(answer: Any, properties: dict[str, Any]) -> dict[str, Any]:
    """The answer as the form that was asked for. A form with one field can be answered with its value alone."""
    if isinstance(answer, str) and (len(properties) != 1 or next(iter(properties.values())).get("type") != "string"):
        with suppress(ValueError):  # it was typed
            answer = json.loads(answer)
    if isinstance(answer, dict):
        return answer  # pyright: ignore[reportUnknownVariableType]
    if answer is True and not properties:
        return {}
    return {next(iter(properties)): answer} if len(properties) == 1 else {}
