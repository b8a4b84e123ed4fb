"""Runs and sessions that are not in memory: of earlier processes, or dropped to free memory. They are in the store."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from typing import Final

from ..errors import SessionNotFound, StoreDamaged, StoreError
from ..sessions import Session, SessionStore
from ..sessions.records import RunRecord
from .agents import AgentTable
from .deleted_usage import DeletedUsage, owner_of_deleted
from .problems import Problem, no_such_session
from .registry import RunRegistry, ServedRun
from .retention import Retention
from .sessions import OwnedSession, SessionRegistry
from .settings import Settings
from .stored_runs import StoredRun, StoredRuns, held
from .stored_session import is_of_one_run, owner_and_name, stored_name
from .usage import UsageRows, UsageTotals, UsedRun, used_run

_log: Final = logging.getLogger("quiesce.server")
# Holds a conversation, as a run does, while it is being deleted.
_DELETION: Final = "deletion"


class History:
    """Finds runs and sessions in memory or in the store, and deletes them in both. Only for the server's own loop.

    The newest runs of an owner are read at the owner's first request. Without a store, there is only the memory.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        agents: AgentTable,
        runs: RunRegistry,
        sessions: SessionRegistry,
        retention: Retention,
        usage: UsageTotals,
        store: SessionStore | None,
    ) -> None:
        self._settings: Final = settings
        self._runs: Final = runs
        self._sessions: Final = sessions
        self._retention: Final = retention
        self._usage: Final = usage
        self._store: Final = store
        self._stored: Final = None if store is None else StoredRuns(store, agents.by_name)
        self._deleted: Final = None if store is None else DeletedUsage(store)
        self._names: Final[dict[str, list[str]]] = {}
        self._owners: Final[set[str]] = set()
        self._unread: Final[dict[str, UsageRows]] = {}
        self._loading: Final[dict[str, asyncio.Lock]] = {}

    async def open(self) -> None:
        """List the stored sessions of all owners. Raises a `StoreError`."""
        if self._store is not None:
            for info in await asyncio.wrap_future(self._store.sessions()):
                found = owner_and_name(info.name)
                owner = owner_of_deleted(info.name) if found is None else found[0]
                if found is not None:
                    self._names.setdefault(found[0], []).append(found[1])
                if owner is not None:
                    self._owners.add(owner)

    # --- Finding ------------------------------------------------------------------------------------------------

    async def load(self, owner: str) -> None:
        """Read the newest sessions and runs of an owner, once. Raises a `StoreError`."""
        if owner not in self._names:
            return
        async with self._loading.setdefault(owner, asyncio.Lock()):
            if owner in self._names:
                await self._finish_deletions(owner)
                found = await self._newest(owner, self._names[owner])
                del self._names[owner]  # later ones are registered when they start
                self._unread.pop(owner, None)
                self._runs.restore(sorted(found, key=lambda run: run.info.created_at))
                self._retention.keep(owner, found)

    async def _newest(self, owner: str, names: list[str]) -> list[StoredRun]:
        """The newest runs of an owner, as many as are kept in memory."""
        assert self._stored is not None
        found: list[StoredRun] = []
        for name in names[: self._settings.keep_sessions]:
            try:
                restored = await self._stored.session(owner, name)
                if restored is not None:
                    session = self._sessions.restore(owner, restored[0])
                    records = [record for record in restored[1] if record.status != "running"]
                    room = self._settings.keep_runs - len(found)
                    found.extend([await self._stored.run(owner, session, record) for record in records[-room:]])
            except StoreError as error:
                _log.warning("session %s of %s is not restored: %s", name, owner, error)
            if len(found) >= self._settings.keep_runs or self._retention.is_full:
                break
        return found

    async def session(self, owner: str, name: str) -> OwnedSession | None:
        """A session of an owner; None when there is none. Raises a `StoreError`."""
        session = self._sessions.find(owner, name)
        if session is not None or self._stored is None:
            return session
        restored = await self._stored.session(owner, name)
        return None if restored is None else self._sessions.restore(owner, restored[0])

    async def run(self, owner: str, run_id: str) -> ServedRun | None:
        """A run of an owner; None when there is none. Raises `Problem` while another server executes it."""
        run = self._runs.of(owner).get(run_id)
        if run is not None or self._stored is None:
            return run
        name = await self._session_of(owner, run_id)
        session = None if name is None else await self.session(owner, name)
        if session is None:
            return None
        record = await self._record(owner, session.name, run_id)
        if record is not None and record.status == "running" and session.conversation.holder is None:
            # A run of this process that could not save its end is sealed now, as after a crash.
            await self._stored.seal(session)
            record = await self._record(owner, session.name, run_id)
        if record is not None and record.status == "running":
            message = "Another server that uses the same store is executing this run."
            raise Problem(409, "elsewhere", message, todo="Ask that server.")
        return None if record is None else await self._stored.run(owner, session, record)

    async def _record(self, owner: str, name: str, run_id: str) -> RunRecord | None:
        assert self._stored is not None
        records = await asyncio.wrap_future(self._stored.store.runs(stored_name(owner, name)))
        return next((record for record in records if record.run_id == run_id), None)

    async def _session_of(self, owner: str, run_id: str) -> str | None:
        """The name of the session that has a run, if it is this owner's."""
        assert self._stored is not None
        found = map(owner_and_name, await asyncio.wrap_future(self._stored.store.find_run(run_id)))
        return next((each[1] for each in found if each is not None and each[0] == owner), None)

    # --- Usage --------------------------------------------------------------------------------------------------

    async def count_usage(self, owner: str) -> None:
        """Count the usage of stored runs that are not in memory, and of deleted ones, once. Raises a `StoreError`."""
        if self._stored is None or self._deleted is None or self._usage.is_read(owner):
            return
        async with self._loading.setdefault(owner, asyncio.Lock()):
            if self._usage.is_read(owner):
                return
            self._usage.begin_reading(owner)
            by_run: dict[str, UsageRows] = {"": (await self._deleted.read(owner))[0]}
            prefix = stored_name(owner, "")
            for info in await asyncio.wrap_future(self._stored.store.sessions()):
                if info.name.startswith(prefix) and owner_and_name(info.name) is not None:
                    by_run |= await self._rows_of(info.name)
            self._usage.add_stored(owner, by_run, self._runs.of(owner))

    @property
    def owners(self) -> list[str]:
        """The owners that have used something, here or in the store when it was opened."""
        return sorted({*self._owners, *self._runs.owners, *self._usage.owners})

    async def usage_of(self, owner: str) -> UsageRows:
        """The usage of an owner, for an operator. Raises a `StoreError`.

        The runs of an owner who has sent no request to this server are not read into memory for it.
        """
        if owner in self._names:
            async with self._loading.setdefault(owner, asyncio.Lock()):
                if owner in self._names:
                    return await self._usage_of_unread(owner)
        await self.count_usage(owner)
        in_memory = (row for run in self._runs.newest_first(owner) for row in used_run(run).rows())
        return [*self._usage.kept(owner), *in_memory]

    async def _usage_of_unread(self, owner: str) -> UsageRows:
        """The usage in the store, which does not change before the first request of the owner."""
        if owner not in self._unread:
            assert self._deleted is not None
            rows, deleted = await self._deleted.read(owner)
            for name in self._names[owner]:
                by_run = await self._rows_of(stored_name(owner, name))
                rows += [row for run_id, of_run in by_run.items() if run_id not in deleted for row in of_run]
            self._unread[owner] = rows
        return self._unread[owner]

    async def _rows_of(self, stored_as: str) -> dict[str, UsageRows]:
        """The usage of the ended runs of a stored session, by their ids."""
        assert self._stored is not None
        try:
            records = await asyncio.wrap_future(self._stored.store.runs(stored_as))
        except SessionNotFound:
            return {}
        return {
            record.run_id: UsedRun(
                record.started, record.agent, None, await self._stored.entries(stored_as, record)
            ).rows()
            for record in records
            if record.status != "running"
        }

    # --- Deleting -----------------------------------------------------------------------------------------------

    async def delete_run(self, run: ServedRun) -> None:
        """Delete an ended run, also from the store. Raises `Problem` while it is running, or a `StoreError`.

        Its messages stay in the conversation of a named session. A session that was made for this run is deleted too.
        """
        if run.run is not None:
            raise Problem(409, "running", "The run has not ended.", todo="Stop it first: POST /runs/{id}/cancel.")
        owner, name = run.info.owner, run.info.session
        if self._stored is not None and self._deleted is not None and name is not None:
            await self.count_usage(owner)
            stored_as = stored_name(owner, name)
            if run.entries:
                await self._deleted.add(owner, {run.id: used_run(run).rows()})
            await self._delete_stored(stored_as, run.id)
            if is_of_one_run(name) and run.conversation.holder is None:
                self._sessions.drop(owner, name)
        self._retention.drop(run)

    async def _delete_stored(self, stored_as: str, run_id: str) -> None:
        """Delete a run from the store, and the session that the server made for it when that has no other run."""
        assert self._stored is not None
        store, found = self._stored.store, owner_and_name(stored_as)
        with suppress(SessionNotFound):  # no run has written to it, or it was deleted with its runs
            await asyncio.wrap_future(store.delete_run(stored_as, run_id))
            if found is not None and is_of_one_run(found[1]) and not await asyncio.wrap_future(store.runs(stored_as)):
                await asyncio.wrap_future(store.delete(stored_as))

    async def delete_session(self, owner: str, name: str) -> None:
        """Delete a session, also from the store. Raises `Problem` when there is none or a run uses it, or `StoreError`.

        Its runs go from the store with it, and count in the usage.
        """
        session = await self.session(owner, name)
        if session is None:
            raise no_such_session()
        conversation = session.conversation
        if conversation.holder is not None:
            message = f"Run {conversation.holder} is using this session."
            raise Problem(409, "session_busy", message, todo="Stop it first.")
        if isinstance(conversation, Session):
            await self.count_usage(owner)
            with suppress(SessionNotFound):  # no run has written to it yet
                await self._delete_conversation(owner, conversation)
        for run in self._runs.ended(owner):
            if run.info.session == name:
                self._retention.drop(run)
        self._sessions.drop(owner, name)

    async def _delete_conversation(self, owner: str, conversation: Session) -> None:
        """Delete a session from the store. Its runs are counted only when no other run can refuse the deletion."""
        assert self._deleted is not None
        await asyncio.wrap_future(conversation.store.load(conversation.name))  # so that `held` makes none
        conversation.hold(_DELETION)
        try:
            async with AsyncExitStack() as stack:
                with suppress(StoreDamaged):  # which can be deleted all the same
                    await stack.enter_async_context(held(conversation))
                await self._deleted.add(owner, await self._rows_of(conversation.name))
                conversation.release(_DELETION)
                await conversation.delete()
        finally:
            conversation.release(_DELETION)

    async def _finish_deletions(self, owner: str) -> None:
        """Delete the runs that were counted as deleted when an earlier process ended."""
        assert self._stored is not None
        assert self._deleted is not None
        _, counted = await self._deleted.read(owner)
        for run_id in counted:
            name = await self._session_of(owner, run_id)
            if name is not None:
                await self._delete_stored(stored_name(owner, name), run_id)
