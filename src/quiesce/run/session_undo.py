"""The undo of a task whose conversation is a session: each step is written to its store."""

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from typing import Final

import msgspec

from ..cancellation import BoundedShield, CancellationToken
from ..receipt import UndoReceipt
from ..sessions import Session
from ..sessions.journal.journal import STORE_TIMEOUT
from ..sessions.records import Lease
from ..tools.undo.effect import StoredEffect
from ..tools.undo.log import UndoLog
from .undo import PREFIX, FindTool, task_log, tell_model


class SessionUndo:
    """An undo of the task of a session: it holds the session meanwhile, and writes each step to its store."""

    def __init__(self, session: Session, find: FindTool, *, withdraw: str | None = None) -> None:
        self._session: Final = session
        self._find: Final = find
        self._withdraw: Final = withdraw
        self._holder: Final = f"undo-{uuid.uuid4().hex[:8]}"
        self._changes: Final[dict[str, bytes]] = {}
        self._shield: Final = BoundedShield("undo")

    async def run(self, token: CancellationToken | None, only: UndoLog | None = None) -> tuple[UndoReceipt, ...]:
        """Undo the task, or `only` a part of it. Raises `ConversationBusy` or a `StoreError`, with nothing undone."""
        session = self._session
        session.hold(self._holder)
        try:
            lease = await session.open(asyncio.get_running_loop().create_future())
            assert isinstance(lease, Lease)
            session.opened()
            try:
                receipts, interrupted = await self._undo(lease, token or CancellationToken(), only)
            finally:
                session.store.release(lease)
        finally:
            session.release(self._holder)
        if interrupted or self._shield.interrupted:
            raise asyncio.CancelledError
        return receipts

    async def _undo(
        self, lease: Lease, token: CancellationToken, only: UndoLog | None
    ) -> tuple[tuple[UndoReceipt, ...], bool]:
        session = self._session
        if self._withdraw is not None and session.pending is not None:
            session.drop_pending(self._withdraw)
        task = session.task
        if task is None:
            return (), False
        log = session.effects = task_log(session, task.id, self._find)
        log.on_change = self._note
        try:
            receipts, interrupted = await (only or log).undo(
                token.child(), partial(self._save, lease), save_timeout=STORE_TIMEOUT
            )
            tell_model(session, receipts)
            log.mark_told()
        finally:
            log.on_change = None
        saving = asyncio.ensure_future(self._save(lease))
        await self._shield.wait((saving,), seconds=STORE_TIMEOUT)
        if not saving.done():
            saving.cancel()
        elif not saving.cancelled():
            saving.exception()  # taken, because the undo stands: what is not saved is told by the next run
        return receipts, interrupted

    def _note(self, number: int, effect: StoredEffect | None) -> None:
        self._changes[f"{PREFIX}{number}"] = msgspec.json.encode(effect)

    async def _save(self, lease: Lease) -> None:
        changes = dict(self._changes)
        await self._session.save(lease, changes)
        for key, value in changes.items():
            if self._changes.get(key) is value:
                del self._changes[key]
