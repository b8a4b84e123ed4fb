"""One run on a worker, from the moment when it is taken until its end is recorded.

The journal says what has happened. A run without a journal is started; one that has ended is recorded as such; any
other was begun by a worker that is lost, so its conversation is sealed, and another run goes on with it by policy.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from ..agent import AnyAgent
from ..cancellation import Cause, Mode
from ..errors import InterruptError, LeaseLost, QuiesceError, SessionNotFound, StoreDamaged, StoreError, public_text
from ..interrupts import UsedBudget
from ..limits import Limits
from ..messages import UserMessage
from ..receipt import Receipt
from ..run.handle import Run
from ..run.options import RunOptions
from ..sessions import SessionStore
from ..telemetry.fleet_metrics import FleetMetrics
from . import run_table
from .answers import read_answers
from .database import FleetDatabase
from .endings import has_committed, journaled, receipt_of
from .guarded_session import GuardedSession
from .records import Command, FleetRun, FleetRunStatus, RunRequest, StopBody
from .versions import agent_version

_log: Final = logging.getLogger("quiesce.fleet")
# A run that was lost with so many workers may be what ended them: it is sealed, and does not go on.
MAX_LOSSES: Final = 3
SHUTDOWN: Final = "the worker is shutting down"
CAPPED: Final = "A cap of the fleet allows a run no more than this today"

FleetDepsFactory: TypeAlias = Callable[[FleetRun], object | Awaitable[object]]


class ExecutionHost(Protocol):
    """The part of a worker that its executions use."""

    database: FleetDatabase
    store: SessionStore
    deps: FleetDepsFactory | None
    metrics: FleetMetrics

    @property
    def lease(self) -> float:
        """Seconds that the worker keeps its runs without renewing them."""
        ...

    def changed(self, run_id: str) -> None:
        """Notify watchers of a run."""

    async def deliver(self, run_ids: Sequence[str]) -> None:
        """Give runs the commands that are stored for them."""

    async def persist(self, operation: Callable[[Any], Awaitable[bool]]) -> bool:
        """Carry an operation out in a transaction, again and again while the database is away."""
        ...


class Refusal(Enum):
    """Why a run may not begin although the session is held."""

    LOST = "another worker has the run"
    BEGUN = "an earlier attempt has begun the run"
    MOVED_ON = "a newer prompt has come"


class Execution:
    """A run that this worker has. Only for the worker's loop."""

    def __init__(self, host: ExecutionHost, agent: AnyAgent, run: FleetRun) -> None:
        self.run = run
        """The run as it was taken; its attempt is newer when the worker has taken it again after a pause."""
        self._host: Final = host
        self._agent: Final = agent
        self._refusal: Refusal | None = None
        self._handle: Run[Any] | None = None
        self._shutdown: Mode | None = None
        self._applied: Final[dict[int, bool]] = {}
        self._stop_asked: float | None = None

    # --- Running --------------------------------------------------------------------------------------------------

    async def perform(self) -> None:
        """Bring the run to its end. Raises a `StoreError` when that cannot be recorded: then another worker has to."""
        while True:
            record = await journaled(self._host.store, self.run)
            if record is not None:
                return await self._take_over()
            if self.run.attempt > MAX_LOSSES:
                cause = Cause("shutdown", f"{self.run.attempt - 1} workers were lost when they began this run")
                return await self._record(run_table.unbegun_receipt(self.run.id, cause), "crashed")
            await self._note_version()
            result = await self._start()
            refusal, self._refusal = self._refusal, None
            if refusal is Refusal.LOST:
                _log.warning("run %s: %s", self.run.id, refusal.value)
                return None
            if refusal is Refusal.MOVED_ON:
                cause = Cause("remote", refusal.value)
                return await self._record(run_table.unbegun_receipt(self.run.id, cause))
            if refusal is None:
                return await self._settle(*result)

    async def _note_version(self) -> None:
        """A worker that was lost before it began the run may have had another version of the agent."""
        version = agent_version(self._agent)
        if self.run.version != version:
            await self._host.database.ask(run_table.set_version, self.run, version)

    async def _start(self) -> tuple[Receipt, Exception | None]:
        """Start the run, and wait until it is at rest."""
        run = self.run
        earlier = await self._host.database.ask(run_table.undelivered, (run.id,))
        try:
            handle = await self._launch(self._session(self._may_begin))
        except Exception as error:  # whatever a function for `deps` raises: another worker would fail with it too
            _log.error("run %s cannot be started: %s", run.id, error, exc_info=not isinstance(error, QuiesceError))
            failed = run_table.unbegun_receipt(run.id, Cause("caller", public_text(error)), "error")
            return failed, error
        self._handle = handle
        for command in earlier:  # a stop that was accepted before: nothing is sent, for the run has made no step yet
            self.apply(command)
        handle.tap(lambda _: self._host.changed(run.id))
        if self._shutdown is not None:
            handle.cancel(SHUTDOWN, mode=self._shutdown, source="shutdown")
        try:
            await self._host.deliver((run.id,))
        except StoreError as error:  # they are read again soon
            _log.warning("run %s: commands cannot be read: %s", run.id, error)
        receipt = await handle.stopped()
        result = handle.inspect().result
        self._handle = None
        return receipt, None if result is None else result.error

    async def _launch(self, session: GuardedSession) -> Run[Any]:
        run, agent, options = self.run, self._agent.fork(), await self._options(session)
        match run.kind:
            case "prompt":
                return agent.start(msgspec.json.decode(run.given, type=UserMessage), **options)
            case "answer":
                return agent.start_answer(read_answers(run.given), **options)
            case "continue" if run.continued_from and await session.prepare_repeat(self._may_repeat):
                return agent.start_answer({}, **options)
            case "continue":
                return agent.start_continue(**options)

    async def _options(self, session: GuardedSession) -> RunOptions[Any]:
        run, make_deps = self.run, self._host.deps
        options: RunOptions[Any] = {"conversation": session, "owner": run.owner, "run_id": run.id, "on_busy": "queue"}
        if run.timeout is not None:
            options["timeout"] = run.timeout
        if run.reserved_tokens is not None or run.reserved_cost is not None:
            options["limits"] = await self._capped_limits(session)
        if make_deps is not None:
            made: Any = make_deps(run)
            options["deps"] = await made if inspect.isawaitable(made) else made
        return options

    async def _capped_limits(self, session: GuardedSession) -> Limits:
        """The agent's limits, and what the run has reserved of the caps of the day, above what its task has used."""
        run, before = self.run, UsedBudget()
        if run.kind != "prompt":
            with suppress(SessionNotFound):
                await session.load()
            before = before if session.task is None else session.task.used
        shares = {"tokens": run.reserved_tokens, "cost": run.reserved_cost}
        used = {"tokens": before.input + before.output, "cost": before.cost}
        allowed = {name: used[name] + share for name, share in shares.items() if share is not None}
        limits: dict[Any, Any] = {**self._agent.config.limits.values}
        for name, most in allowed.items():
            limits[name] = min(most, limits.get(name, most))
        return Limits.of(limits, advice=CAPPED)

    def _may_repeat(self, tool_name: str) -> bool:
        tool = self._agent.tools.get(tool_name)
        return tool is not None and tool.idempotent

    def _session(self, check: Callable[[GuardedSession], Awaitable[None]]) -> GuardedSession:
        # The lease of a lost worker has to expire first.
        return GuardedSession(
            self.run.session, self._host.store, check, lease=self._host.lease, wait=2 * self._host.lease + 10
        )

    # --- Checks, while the session is held ------------------------------------------------------------------------

    async def _still_mine(self, _: GuardedSession) -> None:
        if not await self._host.database.ask(run_table.is_mine, self.run):
            self._refuse(Refusal.LOST)

    async def _may_begin(self, session: GuardedSession) -> None:
        await self._still_mine(session)
        if await journaled(self._host.store, self.run) is not None:
            self._refuse(Refusal.BEGUN)
        before = self.run.continued_from
        if self.run.kind == "continue" and before and session.last_writer != before:
            self._refuse(Refusal.MOVED_ON)

    def _refuse(self, why: Refusal) -> None:
        self._refusal = why
        raise LeaseLost(f"Run {self.run.id} may not begin here: {why.value}.")

    # --- Ending ---------------------------------------------------------------------------------------------------

    async def _settle(self, receipt: Receipt, error: Exception | None) -> None:
        """Record the end of a run that was started here. What it could not save is sealed, as after a crash."""
        record = None if receipt.saved else await journaled(self._host.store, self.run)
        if record is not None:
            return await self._take_over()
        if isinstance(error, LeaseLost) or (isinstance(error, StoreError) and error.retryable):
            raise error  # it has not begun
        return await self._record_ended(receipt)

    async def _record_ended(self, receipt: Receipt) -> None:
        """Record the end of a run. One that was stopped because its worker ended is followed by another."""
        follow_up = None
        if receipt.stop_reason == "cancelled" and receipt.cause is not None and receipt.cause.source == "shutdown":
            follow_up = await self._follow_up(losses=self.run.losses)
        await self._record(receipt, followed_by=follow_up)

    async def _take_over(self) -> None:
        """Seal what a lost worker has left, and let another run go on with it."""
        sealing = self._session(self._still_mine)
        try:
            await sealing.seal()
        except LeaseLost:
            return
        except StoreDamaged as error:
            _log.error("run %s cannot be sealed: %s", self.run.id, error)
        record = await journaled(self._host.store, self.run)
        assert record is not None
        receipt = await receipt_of(self._host.store, self.run, record)
        if record.status == "ended":
            await self._record_ended(receipt)
            return
        may_go_on = record.status == "crashed" and sealing.pending is None and self.run.losses + 1 < MAX_LOSSES
        follow_up = await self._follow_up(losses=self.run.losses + 1) if may_go_on else None
        await self._record(receipt, "crashed", follow_up)

    async def _follow_up(self, *, losses: int) -> RunRequest | None:
        """The run that goes on with this one, by policy."""
        run = self.run
        if run.on_worker_loss != "continue" or run.stop:
            return None
        request = RunRequest(
            run.owner, run.agent, run.session, "continue", label=run.label, continued_from=run.id, losses=losses
        )
        has_begun = await journaled(self._host.store, run) is not None and await has_committed(self._host.store, run)
        if not has_begun:
            return replace(request, kind=run.kind, given=run.given, timeout=run.timeout)
        return replace(request, version=run.version)

    async def _record(
        self, receipt: Receipt, state: FleetRunStatus = "ended", followed_by: RunRequest | None = None
    ) -> None:
        engine = self._host.database.engine

        async def end(db: Any) -> bool:
            return await run_table.end(db, engine, self.run, receipt, state=state, followed_by=followed_by)

        if await self._host.persist(end):
            if self._stop_asked is not None:
                self._host.metrics.at_rest(self.run.agent, asyncio.get_running_loop().time() - self._stop_asked)
        else:
            _log.warning("run %s: its end is not recorded here, because %s", self.run.id, Refusal.LOST.value)

    # --- Commands -------------------------------------------------------------------------------------------------

    def stop_for_shutdown(self, mode: Mode, reason: str = SHUTDOWN) -> None:
        """Stop the run because its worker ends."""
        self._shutdown = mode
        if self._handle is not None:
            self._handle.cancel(reason, mode=mode, source="shutdown")

    def apply(self, command: Command) -> bool | None:
        """Give a command to the run, once. Whether it changed anything; None while there is no run to give it to."""
        if self._handle is not None and command.id not in self._applied:
            self._applied[command.id] = self._apply(self._handle, command)
            if command.kind == "stop" and self._stop_asked is None:
                self._stop_asked = asyncio.get_running_loop().time() - command.age
                self._host.metrics.stop_delivered(self.run.agent, command.age)
        return self._applied.get(command.id)

    def _apply(self, handle: Run[Any], command: Command) -> bool:
        try:
            match command.kind:
                case "stop":
                    stop = msgspec.json.decode(command.body, type=StopBody)
                    return handle.cancel(stop.reason, mode=stop.mode, source=stop.source, undo=stop.undo)
                case "steer":
                    return handle.steer(msgspec.json.decode(command.body, type=UserMessage))
                case "cancel_tool":
                    call_id, reason = msgspec.json.decode(command.body, type=tuple[str, str])
                    return handle.cancel_tool(call_id, reason)
                case "answer":
                    return handle.take_answers(read_answers(command.body))
                case "pause":
                    return handle.cause is None and handle.pause()
                case "unpause":
                    return handle.resume()
        except (msgspec.MsgspecError, InterruptError) as error:
            _log.warning("run %s: a command (%s) is not valid: %s", self.run.id, command.kind, error)
            return False
