"""Approvals that a person has given in advance: for a session, or for calls with certain arguments, until some time.

An approval counts for one definition of the tool, and for the owner who gave it. A later no takes it back.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ..hooks import BeforeApproval
from ..interrupts import Interrupt
from ..sessions import SessionStore
from .owner_values import OwnerValues
from .problems import Problem
from .run_metadata import RunMetadata
from .schemas import ArgumentPattern, Remember, StandingApproval

_VALUE: Final = "approvals"
_MOST: Final = 200


class StandingApprovals:
    """The standing approvals of all owners. Only for the server's own loop."""

    def __init__(self, store: SessionStore | None) -> None:
        self._values: Final = OwnerValues(store, ".approvals")
        self._by_owner: Final[dict[str, dict[str, StandingApproval]]] = {}
        self._loading: Final = asyncio.Lock()
        self._changing: Final = asyncio.Lock()

    async def of(self, owner: str) -> tuple[StandingApproval, ...]:
        """The approvals of an owner that have not ended, the newest first. Raises a `StoreError`."""
        return tuple(reversed(_lasting(await self._load(owner)).values()))

    async def add(self, info: RunMetadata, interrupt: Interrupt, wanted: Remember, definition: str) -> StandingApproval:
        """Approve, in advance, calls like the one that is asked about. Raises `Problem`, or a `StoreError`."""
        _check(wanted, info, interrupt)
        now = time.time()
        approval = StandingApproval(
            uuid.uuid4().hex[:12],
            info.agent.name,
            interrupt.tool_name,
            info.session if wanted.scope == "session" else None,
            wanted.arguments,
            info.owner,
            now,
            None if wanted.expires_in is None else now + wanted.expires_in,
            definition,
        )
        kept = await self._load(info.owner)
        async with self._changing:
            if len(_lasting(kept)) >= _MOST:
                raise Problem(409, "too_many_approvals", f"There are {_MOST} approvals.", todo="Take one back first.")
            await self._save(info.owner, {**_lasting(kept), approval.id: approval})
            kept[approval.id] = approval  # only what is saved counts
        return approval

    async def take_back(self, owner: str, approval_id: str) -> StandingApproval | None:
        """Take an approval back, at once; None when there is none. Raises a `StoreError` when that is not saved."""
        taken = await self._take_back(owner, lambda each: each.id == approval_id)
        return taken[0] if taken else None

    async def take_back_like(self, info: RunMetadata, interrupt: Interrupt) -> list[StandingApproval]:
        """Take back all approvals that would have approved this call: it was denied. Raises a `StoreError`."""
        return await self._take_back(info.owner, lambda each: _covers(each, info, interrupt))

    async def session_deleted(self, owner: str, name: str) -> None:
        """Remove the approvals of a deleted session, so that a new one of that name has none. Raises a `StoreError`."""
        await self._take_back(owner, lambda each: each.session == name)

    async def _take_back(self, owner: str, is_meant: Callable[[StandingApproval], bool]) -> list[StandingApproval]:
        kept = await self._load(owner)
        taken = [each for each in kept.values() if is_meant(each)]
        # An approval that is taken back ends at once. It is removed when that is saved, so that a retry finds it.
        kept.update({each.id: replace(each, expires_at=0.0) for each in taken})
        if taken:
            async with self._changing:
                await self._save(owner, _lasting(kept))
        for approval in taken:
            kept.pop(approval.id, None)
        return taken

    async def decide(self, info: RunMetadata, event: BeforeApproval) -> StandingApproval | None:
        """Approve the call of a hook event if an approval covers it; returns that approval. Raises a `StoreError`."""
        for approval in _lasting(await self._load(info.owner)).values():
            if approval.definition == event.definition and _covers(approval, info, event.interrupt):
                event.approve(approval.by, standing=approval.id)
                return approval
        return None

    async def _load(self, owner: str) -> dict[str, StandingApproval]:
        if owner not in self._by_owner:
            async with self._loading:
                if owner not in self._by_owner:
                    stored = (await self._values.read(owner)).get(_VALUE, b"[]")
                    found = msgspec.json.decode(stored, type=list[StandingApproval])
                    self._by_owner[owner] = {each.id: each for each in found}
        return self._by_owner[owner]

    async def _save(self, owner: str, approvals: Mapping[str, StandingApproval]) -> None:
        encoded = msgspec.json.encode(list(approvals.values()))

        async def change(_: Mapping[str, bytes]) -> Mapping[str, bytes]:
            return {_VALUE: encoded}

        await self._values.change(owner, change)


def _lasting(approvals: Mapping[str, StandingApproval]) -> dict[str, StandingApproval]:
    now = time.time()
    return {each.id: each for each in approvals.values() if each.expires_at is None or each.expires_at > now}


def _covers(approval: StandingApproval, info: RunMetadata, interrupt: Interrupt) -> bool:
    """Whether an approval is for this call, apart from the definition of the tool."""
    if approval.tool != interrupt.tool_name or approval.agent != info.agent.name:
        return False
    if approval.session is not None and approval.session != info.session:
        return False
    return all(
        name in interrupt.arguments and _fits(pattern, interrupt.arguments[name])
        for name, pattern in approval.arguments.items()
    )


def _fits(pattern: ArgumentPattern, value: Any) -> bool:
    if pattern.equals is not UNSET:
        return _same(pattern.equals, value)
    return isinstance(pattern.like, str) and isinstance(value, str) and _is_like(value, pattern.like)


def _is_like(text: str, pattern: str) -> bool:
    """Whether a text fits a pattern in which `*` stands for any characters of one line. Takes linear time."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    last = rest.pop()
    end = len(text) - len(last)
    # A `*` would have taken the line breaks that the pattern does not have.
    if text.count("\n") != pattern.count("\n") or not (text.startswith(first) and text.endswith(last)):
        return False
    at = len(first)
    for part in rest:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return at <= end


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: `true` is not 1."""
    return msgspec.json.encode(one, order="deterministic") == msgspec.json.encode(other, order="deterministic")


def _check(wanted: Remember, info: RunMetadata, interrupt: Interrupt) -> None:
    """Raises `Problem` for an approval in advance that makes no sense, or would count for more than was meant."""
    problem = ""
    if interrupt.kind != "approval":
        problem = "Only an approval can be remembered."
    elif wanted.scope == "session" and info.session is None:
        problem = "The run has no session to remember the approval for."
    elif wanted.scope == "agent" and wanted.expires_in is None:
        problem = "An approval for all sessions needs an end: `expires_in`."
    for name, pattern in wanted.arguments.items():
        if name not in interrupt.arguments:
            problem = f"The call has no argument {name!r}."
        elif (pattern.equals is UNSET) == (pattern.like is UNSET):
            problem = f"The pattern of {name!r} needs `equals` or `like`, and not both."
        elif not _fits(pattern, interrupt.arguments[name]):
            problem = f"The pattern of {name!r} does not fit the call that it is given for."
    if problem:
        raise Problem(422, "cannot_be_remembered", problem)
