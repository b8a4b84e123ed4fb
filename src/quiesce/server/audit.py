"""The audit: who has started, stopped, answered, steered and deleted what, and when.

Each owner has its own audit, which no other owner can read. The newest entries are kept, also after their runs and
sessions were deleted. They are written in the background: a stop does not wait for the store.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from ..errors import StoreError
from ..sessions import SessionStore
from .owner_values import OwnerValues
from .run_metadata import RunMetadata
from .schemas import AuditAction, AuditEntry, AuditPage

# The entries are in pages, and a page is one value: the oldest page is overwritten.
_PAGE: Final = 50
_PAGES: Final = 40
MOST: Final = _PAGE * _PAGES
# Entries of one owner that may wait for a store that does not answer. The oldest are dropped first.
_MAX_WAITING: Final = 1000
_LAST: Final = "last"

_log: Final = logging.getLogger("quiesce.server")


class Audit:
    """Keeps the entries of all owners. Only for the server's own loop."""

    def __init__(self, store: SessionStore | None) -> None:
        self._values: Final = OwnerValues(store, ".audit")
        self._waiting: Final[dict[str, list[AuditEntry]]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._one_at_a_time: Final = asyncio.Lock()

    def note(
        self,
        owner: str,
        action: AuditAction,
        *,
        run: str = "",
        session: str | None = None,
        agent: str = "",
        detail: str = "",
        who: str | None = None,
    ) -> None:
        """Note what was done. It is written soon; `who` is the owner unless it is another."""
        entry = AuditEntry(
            0, time.time(), owner if who is None else who, action, run, session or "", agent, detail[:1000]
        )
        waiting = self._waiting.setdefault(owner, [])
        waiting.append(entry)
        del waiting[:-_MAX_WAITING]
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write_all(), name="quiesce audit")

    def note_run(
        self, action: AuditAction, run_id: str, info: RunMetadata, detail: str = "", who: str | None = None
    ) -> None:
        """Note what was done to a run of this process."""
        agent = info.agent.name
        self.note(info.owner, action, run=run_id, session=info.session, agent=agent, detail=detail, who=who)

    async def read(
        self, owner: str, *, before: int | None = None, limit: int = 100, action: str | None = None, run: str = ""
    ) -> AuditPage:
        """The entries of an owner, the newest first. Raises a `StoreError`."""
        await self._write(owner)
        found = _entries(await self._values.read(owner))
        chosen = [
            entry
            for entry in reversed(found)
            if (before is None or entry.number < before)
            and (action is None or entry.action == action)
            and run in ("", entry.run)
        ]
        more = chosen[limit - 1].number if len(chosen) > limit else None
        return AuditPage(tuple(chosen[:limit]), more)

    async def close(self) -> None:
        """Write what waits."""
        if self._writing is not None:
            await self._writing
        await self._write_all()

    async def _write_all(self) -> None:
        for owner in tuple(self._waiting):
            try:
                await self._write(owner)
            except StoreError as error:  # the entries wait for the next one
                _log.warning("the audit of %s is not saved yet: %s", owner, error)

    async def _write(self, owner: str) -> None:
        """Save what waits of one owner. Raises a `StoreError`; the entries wait on then."""
        async with self._one_at_a_time:
            while batch := tuple(self._waiting.get(owner, ())):

                async def change(values: Mapping[str, bytes], new: Sequence[AuditEntry] = batch) -> dict[str, bytes]:
                    return _with(values, new)

                await self._values.change(owner, change)
                left = [entry for entry in self._waiting[owner] if all(entry is not each for each in batch)]
                self._waiting[owner] = left
            self._waiting.pop(owner, None)


def _with(values: Mapping[str, bytes], entries: Sequence[AuditEntry]) -> dict[str, bytes]:
    """The values that change when entries are added."""
    last = int(values.get(_LAST, b"0"))
    pages: dict[str, list[AuditEntry]] = {}
    for entry in entries:
        last += 1
        name = f"page {last // _PAGE % _PAGES}"
        if name not in pages:
            pages[name] = _page(values.get(name, b"[]"))
        kept = pages[name]
        kept[:] = [each for each in kept if each.number // _PAGE == last // _PAGE]
        kept.append(replace(entry, number=last))
    return {_LAST: b"%d" % last, **{name: msgspec.json.encode(page) for name, page in pages.items()}}


def _entries(values: Mapping[str, bytes]) -> list[AuditEntry]:
    pages = [_page(value) for name, value in values.items() if name.startswith("page ")]
    return sorted((entry for page in pages for entry in page), key=lambda entry: entry.number)


def _page(value: bytes) -> list[AuditEntry]:
    return msgspec.json.decode(value, type=list[AuditEntry])
