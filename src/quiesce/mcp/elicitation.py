"""Elicitation: a server's question to a person becomes an interrupt, and the call is made again with the answer.

A call that waited for the person would hold a task and a server all that time, and would be lost in a restart. So the
call is cancelled. When it is made again, the server asks again, and gets the answer that the person has given.
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

from .._threads.tasks import start_task
from ..cancellation import BoundedShield
from ..errors import ToolError
from ..tools.output import as_json, well_formed_value

_T = TypeVar("_T")
# The seconds that a call may take to notify the server that it is cancelled.
_CANCEL_GRACE: Final = 1.0
_current: Final[ContextVar[ElicitingCall | None]] = ContextVar("quiesce_mcp_call", default=None)


class UnansweredElicitation(ToolError):
    """The server asks a question that has no answer yet. `name` identifies it among the questions of the call."""

    def __init__(self, name: str, reason: dict[str, Any]) -> None:
        super().__init__("The server asks a person.")
        self.name: Final = name
        self.reason: Final = reason


class ElicitingCall:
    """One attempt of a call, in the event loop of the connection. `answers` are those to earlier questions, by name."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._answers: Final = answers
        self._counts: Final[Counter[str]] = Counter()
        self._ended: Final = asyncio.Event()
        self._unanswered: Final[asyncio.Future[UnansweredElicitation]] = asyncio.get_running_loop().create_future()

    async def make(self, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Make the call. Cancels it and raises `UnansweredElicitation` at a question without an answer."""
        _current.set(self)
        work = start_task(call(), name="quiesce mcp call that may ask")
        shield = BoundedShield("cancelling a call")
        try:
            await asyncio.wait((work, self._unanswered), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            raise self._unanswered.result()
        finally:
            work.cancel()
            await shield.wait((work,), seconds=_CANCEL_GRACE)
            self._ended.set()
            if shield.interrupted:
                raise asyncio.CancelledError

    async def answer(self, params: Any) -> Any:
        """The response to a question: its answer, or, when the call has ended without one, an error."""
        import mcp_types

        reason = _reason(params)
        question = hashlib.sha256(as_json(reason).encode()).hexdigest()[:8]
        self._counts[question] += 1  # asked again, because its answer was not accepted: that is another question
        name = f"elicitation-{question}-{self._counts[question]}"
        if name in self._answers:
            return _result(self._answers[name], reason)
        if not self._unanswered.done():
            self._unanswered.set_result(UnansweredElicitation(name, reason))
        await self._ended.wait()
        return mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message="The call was cancelled to ask a person")


class Elicitation:
    """The questions of one connection, each assigned to its call.

    An old server on stdio does not say which call a question belongs to, so it gets one call at a time.
    """

    def __init__(self, *, is_stdio: bool) -> None:
        self._is_stdio: Final = is_stdio
        self._call_lock: Final = asyncio.Lock()
        self._current_call: ElicitingCall | None = None

    async def make(self, client: Any, call: Callable[[], Coroutine[Any, Any, _T]], answers: Mapping[str, Any]) -> _T:
        """Make a call during which the server may ask. Raises `UnansweredElicitation`."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        eliciting = ElicitingCall(answers)
        if not self._is_stdio or client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return await eliciting.make(call)
        async with self._call_lock:
            self._current_call = eliciting
            try:
                return await eliciting.make(call)
            finally:
                self._current_call = None

    async def on_request(self, context: Any, params: Any) -> Any:
        """Called by the SDK's client with each question."""
        import mcp_types

        del context
        call = _current.get() or self._current_call
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
    return ElicitResult(
        action="accept", content=_fields(well_formed_value(answer), reason["schema"].get("properties", {}))
    )


def _fields(answer: Any, properties: dict[str, Any]) -> dict[str, Any]:
    """The answer as the requested form. A form with one field can be answered with the value of that field."""
    if isinstance(answer, str) and (len(properties) != 1 or next(iter(properties.values())).get("type") != "string"):
        with suppress(ValueError):  # typed text may be JSON
            answer = json.loads(answer)
    if isinstance(answer, dict):
        return answer  # pyright: ignore[reportUnknownVariableType]
    if answer is True and not properties:
        return {}
    return {next(iter(properties)): answer} if len(properties) == 1 else {}
