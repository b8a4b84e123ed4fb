"""The usage lookup: asks a provider, after a stop, what a cut request has used. Else, the estimate stays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from operator import index
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from msgspec import Struct

from ..conversation.answer import possible
from ..events import UsageDelta
from ..messages import Text, UserMessage
from ..models.base import Model, ModelRequest
from ..usage.estimate.received import ReceivedAnswer
from ..usage.stop_policy import StopAction

# A provider may need a moment before it can say anything about a request that was cut.
_RETRY_DELAYS: Final = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
# A text of one token, for learning what a provider's counter adds to every text.
_SHORTEST: Final = "a"

_ById: TypeAlias = Callable[[str], Awaitable[UsageDelta | None]]
_Count: TypeAlias = Callable[[ModelRequest], Awaitable[int | None]]

_frames: Final[WeakKeyDictionary[Model, int]] = WeakKeyDictionary()


class LookupResult(Struct, frozen=True):
    """The result of a lookup: the usage, or the tokens that the provider's own counter gives."""

    report: UsageDelta | None = None
    cancelled: bool = False
    input: int | None = None
    output: int | None = None


class UsageLookup(Struct, frozen=True):
    """A lookup that can be started, and its name in a receipt."""

    ask: Callable[[], Coroutine[Any, Any, LookupResult]]
    name: str


def usage_lookup(
    model: Model, action: StopAction, *, request_id: str | None, request: ModelRequest, received: ReceivedAnswer
) -> UsageLookup | None:
    """The lookup for a cut request under a stop policy; None when the provider offers none."""
    look_up: _ById | None = getattr(model, "lookup_usage", None)
    cancel: _ById | None = getattr(model, "cancel_request", None)
    count: _Count | None = getattr(model, "count_tokens", None)
    if action == "lookup" and look_up is not None and request_id is not None:
        return UsageLookup(partial(_look_up, look_up, request_id), "looking the bill up")
    if action == "cancel_at_provider" and cancel is not None and request_id is not None:
        return UsageLookup(partial(_cancel, cancel, look_up, request_id), "cancelling at the provider")
    if action == "count" and count is not None:
        return UsageLookup(partial(_count, model, count, request, received), "having tokens counted")
    return None


async def _look_up(look_up: _ById, request_id: str) -> LookupResult:
    """Ask until there is a report; the drain pool limits the time."""
    for delay in _RETRY_DELAYS:
        await asyncio.sleep(delay)
        report = await look_up(request_id)
        if report is not None:
            return LookupResult(_checked(report))
    return LookupResult()


async def _cancel(cancel: _ById, look_up: _ById | None, request_id: str) -> LookupResult:
    report = await cancel(request_id)
    if report is None and look_up is not None:
        report = (await _look_up(look_up, request_id)).report
    return LookupResult(None if report is None else _checked(report), cancelled=True)


async def _count(model: Model, count: _Count, request: ModelRequest, received: ReceivedAnswer) -> LookupResult:
    """Have the provider count the request, unless it has reported that, and the text of the answer."""
    reported = received.report is not None and received.report.input is not None
    sent = None if reported else _whole(await count(request))
    text = "".join(f"{block.name}{block.parts.text()}" for block in received.blocks if block.kind != "reasoning")
    return LookupResult(input=sent, output=await _count_text(model, count, text) if text.strip() else None)


async def _count_text(model: Model, count: _Count, text: str) -> int | None:
    can_be_kept = getattr(model, "__hash__", None) is not None and hasattr(model, "__weakref__")
    frame = _frames.get(model) if can_be_kept else None
    if frame is None:
        one = _whole(await count(_text_request(_SHORTEST)))
        if one is None:
            return None
        frame = one - 1
        if can_be_kept:
            _frames[model] = frame
    whole = _whole(await count(_text_request(text)))
    return None if whole is None else max(1, whole - frame)


def _checked(report: object) -> UsageDelta:
    """A report of a model of the user's own. Raises `TypeError` for what is none."""
    if not isinstance(report, UsageDelta):
        raise TypeError(type(report).__name__)
    return possible(report)


def _whole(count: int | None) -> int | None:
    """A count of a model of the user's own. Raises `TypeError` or `ValueError` for what is none."""
    if count is not None and (count := index(count)) < 0:
        raise ValueError(count)
    return count


def _text_request(text: str) -> ModelRequest:
    """A request with only this text, because counters count requests."""
    return ModelRequest((UserMessage((Text(text),)),))
