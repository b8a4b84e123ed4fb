"""A fleet as its clients see it: queue runs, watch them, stop and steer them, from any process."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Self

from ..cancellation import Mode
from ..conversation.validity import user_message
from ..errors import ConversationBusy, SessionNotFound
from ..events import RunEnded
from ..messages import Prompt
from ..run.argument_checks import check_choice, checked_timeout
from ..sessions import SessionStore
from ..sessions.journal.rows import NumberedEvent, encode, unpack
from ..sessions.session import checked_name
from ..sessions.stores.resolve import resolve_store
from . import cap_table, freeze_table, run_table, webhook_table
from .caps import Caps
from .database import FleetDatabase
from .freezes import Freezes
from .guarded_session import GuardedSession
from .records import ACTIVE, CommandKind, FleetRun, OnWorkerLoss, RunRequest, StopBody, StopState, WorkerInfo, stop_body
from .watcher import Watcher
from .webhooks import Webhooks

_STOPS_AT_ONCE: Final = 500
# Seconds that readers wait for their last event until the end is recorded, which is the next thing that a worker does.
# After that the worker is likely to be lost, and the end is in the journal all the same.
_REST_WAIT: Final = 5.0
# Rows of a journal that are read at once. One row may hold many text deltas.
_ROWS: Final = 200


class Fleet:
    """The runs in the Postgres at `url`. As an async context manager, for one event loop.

    Raises `ConfigurationError` for another kind of store, `MissingExtra`, and from each call a `StoreError` when the
    database does not answer.
    """

    def __init__(self, url: str, store: SessionStore | None = None) -> None:
        self._database: Final = FleetDatabase(url)
        self.watcher: Final = Watcher(self._database)
        self.store: Final = store or resolve_store(url)
        self.freezes: Final = Freezes(self._database)
        self.caps: Final = Caps(self._database)
        self.webhooks: Final = Webhooks(self._database)
        self._opened: Any = None

    async def __aenter__(self) -> Self:
        self._opened = self.watcher.listening()
        await self._opened.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.__aexit__(None, None, None)
        await self._database.close()

    # --- Queueing -------------------------------------------------------------------------------------------------

    async def start(
        self,
        agent: str,
        prompt: Prompt,
        *,
        session: str | None = None,
        owner: str = "",
        timeout: float | None = None,  # noqa: ASYNC109 - of the run, on its worker
        on_worker_loss: OnWorkerLoss = "continue",
    ) -> FleetRun:
        """Queue a run of the agent of this name, for a worker that has it. Without a session it has one of its own.

        Raises `ConfigurationError` for what no worker could start.
        """
        check_choice("on_worker_loss", on_worker_loss, OnWorkerLoss)
        timeout = checked_timeout(timeout)
        name = checked_name(session) if session else f"run-{uuid.uuid4().hex[:12]}"
        request = RunRequest(
            owner, agent, name, "prompt", encode(user_message(prompt)), session, timeout, on_worker_loss
        )
        return (await self.submit(request))[0]

    async def submit(
        self, request: RunRequest, *, on_busy: str = "queue", most_runs: int | None = None
    ) -> tuple[FleetRun, bool]:
        """Queue a run, or find the one that a request with the same key has queued; the flag says whether it is new.

        Raises `AgentFrozen` while the agent is frozen, `CapReached` above a cap or where the owner has `most_runs`
        active runs, and `ConversationBusy` with `on_busy="refuse"` while another run has the session or waits for it.
        """
        async with self._database.transaction() as db:
            await freeze_table.hold(db)
            if request.idempotency_key is not None:
                lock = f"{request.owner}/{request.idempotency_key}"
                await db.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 18))", lock)
                earlier = await run_table.find_by_key(db, request.owner, request.idempotency_key)
                if earlier is not None:
                    return earlier, False
            await freeze_table.check(db, request.agent)
            holder = await run_table.busy_run(db, request.session) if on_busy == "refuse" else None
            if holder is not None:
                raise ConversationBusy(holder)
            await cap_table.check(db, request.owner, request.agent, most_runs)
            return await run_table.insert(db, self._database.engine, request), True

    # --- Looking --------------------------------------------------------------------------------------------------

    async def find(self, run_id: str) -> FleetRun | None:
        """The run with this id; None when there is none."""
        return await self._database.ask(run_table.find, run_id)

    async def runs(
        self,
        *,
        owner: str | None = None,
        states: Sequence[str] = (),
        agent: str | None = None,
        session: str | None = None,
        run_ids: Sequence[str] | None = None,
        prefix: str = "",
        limit: int = 100,
    ) -> list[FleetRun]:
        """Some runs, the newest first; `prefix` is the beginning of their ids."""
        wanted = run_table.Wanted(owner, tuple(states), agent, session, run_ids, prefix)
        return await self._database.ask(run_table.select, wanted, limit)

    async def owners(self) -> list[str]:
        """The owners that have runs, by name."""
        return await self._database.ask(run_table.owners)

    async def session_names(self, owner: str) -> list[str]:
        """The sessions of an owner in the store, the last used first, at most 1,000."""
        return await self._database.ask(run_table.sessions_of, owner)

    async def delete_session(self, owner: str, session: str) -> bool:
        """Delete a session and its runs. False when there is none. Raises `ConversationBusy` while a run uses it.

        The conversation stays while it has runs of another owner.
        """
        async with self._database.transaction() as db:
            is_found = bool(await run_table.delete_runs(db, owner, session))
            holder = await run_table.busy_run(db, session)
            if holder is not None:
                raise ConversationBusy(holder)
            if not await run_table.select(db, run_table.Wanted(session=session), 1):
                with suppress(SessionNotFound):
                    await asyncio.wrap_future(self.store.delete(session))  # if this fails, the runs stay too
                    is_found = True
        return is_found

    async def withdraw_questions(self, run: FleetRun) -> bool:
        """Answer the calls of an ended run that wait for a person as not run. False when none does."""

        async def always(_: GuardedSession) -> None:
            pass

        session = GuardedSession(run.session, self.store, always, lease=10.0, wait=5.0)
        return await session.withdraw_questions()

    async def workers(self) -> list[WorkerInfo]:
        """All workers, those included that were lost in the last hour."""
        return await self._database.ask(run_table.workers)

    async def queues(self) -> list[tuple[str, int, int]]:
        """For each agent with runs that have not ended: its name, how many are queued, and how many are running."""
        return await self._database.ask(run_table.queues)

    async def rest(self, run_id: str, seconds: float | None = None) -> FleetRun | None:
        """Wait until a run is at rest, or for so many seconds; gives the run as it is then."""
        with self.watcher.subscription(run_id) as change:
            loop = asyncio.get_running_loop()
            until = float("inf") if seconds is None else loop.time() + seconds
            while True:
                run = await self.find(run_id)
                left = until - loop.time()
                if run is None or not run.is_active or left <= 0:
                    return run
                await change.wait(min(left, 5.0))

    # --- Commands -------------------------------------------------------------------------------------------------

    async def stop(
        self,
        run_id: str,
        reason: str = "",
        *,
        mode: Mode = Mode.NOW,
        source: Any = "user",
        undo: bool | None = None,
        wait: float | None = None,
    ) -> StopState | None:
        """Stop a run, or the one that goes on with it. None when there is no such run.

        A queued run ends here, before it starts. With `wait`, the answer comes when the run is at rest, or after so
        many seconds; the answer says how far the stop has come. Raises `ConfigurationError` for an unknown source.
        """
        stop = stop_body(reason=reason, mode=mode, source=source, undo=undo)
        while True:
            commands, ended = await self._request_stops([run_id], stop)
            if ended:
                return StopState(ended[0], accepted=True, delivered=True, took=True)
            if commands:
                break
            run = await self.find(run_id)
            if run is None or not (run.is_active or run.restarted_as):
                return None if run is None else StopState(run, accepted=False, delivered=True)
            run_id = run_id if run.is_active else run.restarted_as
        if wait:
            await self.rest(run_id, wait)
        return await self._state(run_id, commands[run_id], accepted=True)

    async def stop_all(
        self,
        reason: str = "",
        *,
        agent: str | None = None,
        owner: str | None = None,
        mode: Mode = Mode.NOW,
        source: Any = "user",
        undo: bool | None = None,
    ) -> list[str]:
        """Stop all runs that are queued or running, or those of one agent or owner; gives their ids."""
        stop = stop_body(reason=reason, mode=mode, source=source, undo=undo)
        stopped: dict[str, None] = {}
        while True:
            active = await self.runs(states=ACTIVE, agent=agent, owner=owner, limit=1_000_000)
            left = [run.id for run in active if run.id not in stopped]
            for first in range(0, len(left), _STOPS_AT_ONCE):
                commands, ended = await self._request_stops(left[first : first + _STOPS_AT_ONCE], stop)
                stopped |= dict.fromkeys((*commands, *(run.id for run in ended)))
            if not left:
                return list(stopped)

    async def _request_stops(self, run_ids: list[str], stop: StopBody) -> tuple[dict[str, int], list[FleetRun]]:
        """The stops that are stored for runs on workers, by run, and the runs that ended in the queue."""
        async with self._database.connection() as db:
            commands = await run_table.stop_running(db, run_ids, stop)
            left = [run_id for run_id in run_ids if run_id not in commands]
            if not left:
                return commands, []
            async with db.transaction():
                ended = await run_table.stop_queued(db, self._database.engine, left, stop)
                await webhook_table.record(db, ended)
                return commands, ended

    async def command(
        self, run_id: str, kind: CommandKind, body: object, *, wait: float | None = None
    ) -> StopState | None:
        """Steer a run, cancel one of its tool calls, or answer it. None when there is no such run.

        With `wait`, the answer comes when the command is delivered, or after so many seconds. Not accepted by a run
        that is not on a worker.
        """
        async with self._database.transaction() as db:
            run = await run_table.lock(db, run_id)
            if run is None or run.state != "running":
                return None if run is None else StopState(run, accepted=False)
            command = await run_table.add_command(db, run, kind, encode(body))
        if wait:
            await self._delivery(run.id, command, wait)
        return await self._state(run.id, command, accepted=True)

    async def _delivery(self, run_id: str, command: int, seconds: float) -> None:
        with self.watcher.subscription(run_id) as change:
            loop = asyncio.get_running_loop()
            until = loop.time() + seconds
            while True:
                state = await self._state(run_id, command, accepted=True)
                left = until - loop.time()
                if state is None or state.delivered or state.at_rest or left <= 0:
                    return
                await change.wait(min(left, 5.0))

    async def _state(self, run_id: str, command: int, *, accepted: bool) -> StopState | None:
        async with self._database.connection() as db:
            run = await run_table.find(db, run_id)
            delivered, took = await run_table.command_state(db, command)
        if run is None:
            return None
        return StopState(run, accepted, delivered or not run.is_active, took, command)

    # --- Events ---------------------------------------------------------------------------------------------------

    async def events(
        self, run_id: str, after: int = 0, *, until: asyncio.Event | None = None
    ) -> AsyncIterator[NumberedEvent]:
        """The events of a run after number `after`, as they are saved, to its end. For any number of readers.

        A run that crashed, or that ended before it began, has no `RunEnded` in its journal: the last event is made from
        its receipt. The iteration also ends when `until` is set.
        """
        until = until or asyncio.Event()
        with self.watcher.subscription(run_id) as change:
            while True:
                run = await self.find(run_id)
                if run is None:
                    return
                found = await self._journaled(run, after)
                for each in found:
                    if isinstance(each.event, RunEnded) and run.is_active:
                        await self.rest(run_id, _REST_WAIT)
                    after = each.number
                    yield each
                if found and isinstance(found[-1].event, RunEnded):
                    return
                if not found and not run.is_active:
                    ending = await self._missing_end(run, after)
                    if ending is not None:
                        yield ending
                    return
                if until.is_set() or (not found and not await change.wait_for(until)):
                    return

    async def is_over(self, run: FleetRun, after: int) -> bool:
        """Whether a run has no event after this number, and never will."""
        if run.is_active or await self._journaled(run, after):
            return False
        return await self._missing_end(run, after) is None

    async def _missing_end(self, run: FleetRun, after: int) -> NumberedEvent | None:
        """The last event of a run at rest whose journal has none; None for a reader that has seen the end."""
        receipt = run.receipt
        last = await self._journaled(run, after - 1) if after else []
        has_seen_end = bool(after) and (not last or isinstance(last[-1].event, RunEnded))
        if receipt is None or has_seen_end:
            return None
        return NumberedEvent(after + 1, RunEnded(receipt.stop_reason, receipt))

    async def _journaled(self, run: FleetRun, after: int) -> list[NumberedEvent]:
        try:
            rows = await asyncio.wrap_future(self.store.rows(run.session, run.id, after=after, most=_ROWS))
        except SessionNotFound:  # no run has begun there yet
            return []
        return list(unpack(rows, after))


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[Fleet]:
    """A fleet for one command, whose connections are closed at the end."""
    fleet = Fleet(url)
    async with fleet:
        try:
            yield fleet
        finally:
            await asyncio.wrap_future(fleet.store.close())
