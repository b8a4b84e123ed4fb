"""The desk where runs are started and looked up: who may do what with which run, and how many there may be."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

import msgspec

from ..agent import Agent
from ..cancellation import CancellationToken
from ..conversation.continuation import Continue
from ..errors import ConfigurationError
from ..hooks import OnLateOutcome
from ..interrupts import Answers
from ..messages import Text, UserMessage
from ..result import RunResult
from ..run.handle import Run
from ..sessions import Session, Store
from .event_log import MemoryLog, to_json
from .live_run import RunRecord
from .problems import Problem, no_run
from .run_list import RunListChanges
from .schemas import StartRun
from .sessions import Sessions
from .settings import Settings
from .stored_log import JournaledLog, StoredEvents
from .stored_runs import StoredRuns
from .usage import Record, UsageBook

# Idempotency keys that are remembered, of all API keys together.
_REMEMBERED: Final = 10_000
_log: Final = logging.getLogger("quiesce.server")
_RETRY_AFTER: Final = {"Retry-After": "1"}


class RunRegistry:
    """The agents of a server and the runs of all its keys. Only for the server's own loop."""

    def __init__(self, agents: Sequence[Agent], settings: Settings, store: Store | None = None) -> None:
        self.agents: Final = _by_name(agents)
        self.settings: Final = settings
        self.sessions: Final = Sessions(settings.keep_sessions, store)
        self._archive: Final = None if store is None else StoredRuns(store)
        self.usage: Final = UsageBook()
        self.draining = False
        self.shutdown: Final = CancellationToken()
        """Cancelled when the time for draining is almost over."""
        self._undoing: Final[dict[str, asyncio.Task[None]]] = {}
        self._of: Final[dict[str, dict[str, Record]]] = {}
        self._active: Final[dict[str, RunRecord]] = {}
        self._kept_bytes = 0
        self._streams: Final[dict[str, int]] = {}
        self._changes: Final[dict[str, RunListChanges]] = {}
        self._starts: Final[OrderedDict[tuple[str, str], tuple[bytes, str]]] = OrderedDict()

    # --- Earlier processes --------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Bring back what the store has of servers before this one. Runs that crashed are at rest afterwards."""
        if self._archive is None:
            return
        restored = await self._archive.restore(self.agents, self.settings.keep_sessions)
        for owner, name, agent, conversation, _ in restored:
            self.sessions.restore(owner, name, agent, conversation)
        past = sorted((run for *_, runs in restored for run in runs), key=lambda run: run.created_at)
        for run in past[-self.settings.keep_runs :]:
            self._of.setdefault(run.owner, {})[run.id] = run

    async def close(self) -> None:
        """Let go of the store."""
        if self._archive is not None:
            await asyncio.wrap_future(self._archive.store.close())

    # --- Starting -----------------------------------------------------------------------------------------------

    def start(self, owner: str, wanted: StartRun, idempotency_key: str | None) -> tuple[Record, bool]:
        """Start a run, unless this key has started it before; whether it is new.

        Nothing in here waits, so that two requests with the same idempotency key cannot both start one.
        """
        fingerprint = hashlib.sha256(msgspec.json.encode(wanted)).digest()
        if idempotency_key is not None:
            earlier = self._started_before(owner, idempotency_key, fingerprint)
            if earlier is not None:
                return earlier, False
        self._check_room(owner)
        agent = self._agent(wanted.agent)
        session = wanted.session
        if session is None and self._archive is not None:
            session = f"run-{uuid.uuid4().hex[:12]}"  # what is to outlive the process needs a name
        if session is None:
            conversation = agent.conversation.branch()
        else:
            conversation = self.sessions.open(owner, session, agent).conversation
        prompt = wanted.prompt if isinstance(wanted.prompt, str) else UserMessage(tuple(wanted.prompt))
        run = self._twin(agent).start(prompt, timeout=wanted.timeout, conversation=conversation, on_busy=wanted.on_busy)
        record = self.admit(run, owner, agent, wanted, session=session)
        if idempotency_key is not None:
            self._remember(owner, idempotency_key, fingerprint, run.id)
        return record, True

    def admit(self, run: Run, owner: str, agent: Agent, wanted: StartRun, *, session: str | None) -> RunRecord:
        """Take a run that was just started into the books."""
        settings = self.settings
        record = RunRecord(
            run,
            self._log_of(run),
            owner=owner,
            agent=agent,
            session=session,
            prompt=_words(wanted),
            on_disconnect=wanted.on_disconnect or settings.on_disconnect,
            grace=settings.disconnect_grace if wanted.disconnect_grace is None else wanted.disconnect_grace,
            mode=wanted.mode,
            on_end=self._on_end,
            on_change=self._on_change,
        )
        self._of.setdefault(owner, {})[record.id] = record
        self._active[record.id] = record
        self._on_change(record)
        return record

    def _twin(self, agent: Agent) -> Agent:
        """A twin for each run: what one key's run does to the agent (its ledger, `agent.cancel()`) reaches no other."""
        twin = agent.fork()
        twin.hook(OnLateOutcome)(self._on_late)
        return twin

    def _on_late(self, event: OnLateOutcome) -> None:
        for mine in self._of.values():
            if event.run_id in mine:
                self._on_change(mine[event.run_id])

    def _log_of(self, run: Run) -> MemoryLog:
        conversation = run.conversation
        if not isinstance(conversation, Session):
            return MemoryLog(self.settings.log_bytes)
        return JournaledLog(self.settings.log_bytes, StoredEvents(conversation, run.id))

    def go_on(self, record: Record, opening: Answers | Continue) -> RunRecord:
        """A new run that goes on where an ended one is. Raises `Problem`, or what `agent.start` raises."""
        if record.run is not None:
            raise Problem(409, "running", "The run is still going on.", todo="Wait for it, or stop it.")
        self._check_room(record.owner)
        run = self._twin(record.agent).start(opening, conversation=record.conversation, on_busy="refuse")
        self._on_change(record)
        wanted = StartRun(record.prompt, on_disconnect=record.on_disconnect, mode=record.mode)
        return self.admit(run, record.owner, record.agent, wanted, session=record.session)

    def cancel_questions(self, record: Record) -> bool:
        """A stop of a run that waits for a person: it is no longer asked. Whether it was."""
        cancelled = record.cancel_questions()
        if cancelled:
            self._on_change(record)
        return cancelled

    def check_open(self) -> None:
        """Raises `Problem` while the server drains: there are no new runs then."""
        if self.draining:
            raise Problem(
                503,
                "draining",
                "The server is shutting down and takes no new runs.",
                todo="Try again in a moment; another server may answer.",
                headers={"Retry-After": str(max(1, round(self.settings.drain)))},
            )

    def _check_room(self, owner: str) -> None:
        self.check_open()
        mine = sum(record.owner == owner for record in self._active.values())
        if mine >= self.settings.max_runs_per_key or len(self._active) >= self.settings.max_runs:
            raise Problem(
                429,
                "too_many_runs",
                f"{mine} runs of this key are going on, and {len(self._active)} in all.",
                todo="Wait for one to end, or stop one.",
                headers=_RETRY_AFTER,
            )

    def _agent(self, name: str | None) -> Agent:
        if name is None:
            return next(iter(self.agents.values()))
        agent = self.agents.get(name)
        if agent is None:
            raise Problem(422, "no_such_agent", "There is no agent of this name.", todo="GET /agents lists them.")
        return agent

    # --- Idempotency --------------------------------------------------------------------------------------------

    def _started_before(self, owner: str, key: str, fingerprint: bytes) -> Record | None:
        earlier = self._starts.get((owner, key))
        if earlier is None:
            return None
        if earlier[0] != fingerprint:
            raise Problem(
                422,
                "idempotency_key_reused",
                "This Idempotency-Key was used for another request.",
                todo="Use a new one for each run.",
            )
        record = self._of.get(owner, {}).get(earlier[1])
        if record is None:
            raise Problem(
                410, "run_forgotten", f"This request started run {earlier[1]}, which is no longer known.", todo=""
            )
        return record

    def _remember(self, owner: str, key: str, fingerprint: bytes, run_id: str) -> None:
        self._starts[owner, key] = (fingerprint, run_id)
        while len(self._starts) > _REMEMBERED:
            self._starts.popitem(last=False)

    # --- Looking ------------------------------------------------------------------------------------------------

    def get(self, owner: str, run_id: str) -> Record:
        """One run. Raises `Problem` when this key has none with that id."""
        record = self._of.get(owner, {}).get(run_id)
        if record is None:
            raise no_run()
        return record

    def all(self, owner: str) -> tuple[Record, ...]:
        """The runs of one key, the newest first."""
        return tuple(reversed(self._of.get(owner, {}).values()))

    @property
    def active(self) -> tuple[RunRecord, ...]:
        """The runs of all keys that have not ended."""
        return tuple(self._active.values())

    # --- Watching -----------------------------------------------------------------------------------------------

    def changes(self, owner: str, place: str) -> AsyncIterator[bytes]:
        """The changes in the runs of one key as server-sent events, from `place` on."""
        noted = self._changes.setdefault(owner, RunListChanges())
        if self.draining:
            noted.close()
        return noted.read(place, self._of.setdefault(owner, {}))

    def end_changes(self) -> None:
        """Nobody needs to watch any longer."""
        for noted in self._changes.values():
            noted.close()

    def _on_change(self, record: Record, *, urgent: bool = True) -> None:
        noted = self._changes.get(record.owner)
        if noted is not None:  # nobody has ever watched, mostly
            noted.note(record.id, urgent=urgent)

    # --- Streams ------------------------------------------------------------------------------------------------

    @property
    def open_streams(self) -> int:
        """How many event streams are open, of all keys."""
        return sum(self._streams.values())

    def stream_opened(self, owner: str) -> None:
        """Count a reader in. Raises `Problem` when there are too many."""
        mine = self._streams.get(owner, 0)
        if mine >= self.settings.max_streams_per_key or self.open_streams >= self.settings.max_streams:
            raise Problem(
                429,
                "too_many_streams",
                f"{mine} event streams of this key are open.",
                todo="Close one, or GET /runs/{id} instead.",
                headers=_RETRY_AFTER,
            )
        self._streams[owner] = mine + 1

    def stream_closed(self, owner: str) -> None:
        """Count a reader out."""
        self._streams[owner] -= 1
        if not self._streams[owner]:
            del self._streams[owner]

    # --- Undoing ------------------------------------------------------------------------------------------------

    def undo(self, record: Record, result: RunResult) -> asyncio.Task[None]:
        """Take back what a run did; the receipt says what came of it. Goes on when the client that asked has gone."""
        undoing = self._undoing.get(record.id)
        if undoing is None:
            self.check_open()
            undoing = asyncio.get_running_loop().create_task(self._undo(result), name=f"undo of run {record.id}")
            self._undoing[record.id] = undoing
            undoing.add_done_callback(lambda task: self._undo_ended(record, task))
        return undoing

    def _undo_ended(self, record: Record, task: asyncio.Task[None]) -> None:
        self._undoing.pop(record.id, None)
        self._on_change(record)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the undo of run %s failed", record.id, exc_info=error)

    async def _undo(self, result: RunResult) -> None:
        await result.undo(self.shutdown)

    @property
    def undoing(self) -> tuple[asyncio.Task[None], ...]:
        """What is being undone right now."""
        return tuple(self._undoing.values())

    # --- Ending and forgetting ----------------------------------------------------------------------------------

    def _on_end(self, record: RunRecord) -> None:
        self._active.pop(record.id, None)
        self._kept_bytes += record.log.size
        self._write_receipt(record)
        ended = [each for each in self._of[record.owner].values() if each.run is None]
        for old in ended[: max(0, len(ended) - self.settings.keep_runs)]:
            self.forget(old)
        if self._kept_bytes > self.settings.keep_bytes:
            self._forget_the_oldest()

    def _write_receipt(self, record: RunRecord) -> None:
        if self.settings.receipts is not None:
            line = to_json({"owner": record.owner, "agent": record.agent.name, "receipt": record.receipt})
            with self.settings.receipts.open("ab") as file:
                file.write(line + b"\n")

    def delete(self, owner: str, run_id: str) -> None:
        """Forget a run. Raises `Problem` while it is going on."""
        record = self.get(owner, run_id)
        if record.run is not None:
            raise Problem(409, "running", "The run is still going on.", todo="Stop it first: POST /runs/{id}/cancel.")
        self.forget(record)

    def forget(self, record: Record) -> None:
        """Let an ended run go; what it used still counts."""
        if self._of[record.owner].pop(record.id, None) is not None:
            self._kept_bytes -= record.log.size
            self.usage.fold(record)
            noted = self._changes.get(record.owner)
            if noted is not None:
                noted.note_gone(record.id)

    def _forget_the_oldest(self) -> None:
        ended = [each for mine in self._of.values() for each in mine.values() if each.run is None]
        for old in sorted(ended, key=lambda each: each.ended_at or 0.0):
            if self._kept_bytes <= self.settings.keep_bytes:
                return
            self.forget(old)


def _by_name(agents: Iterable[Agent]) -> dict[str, Agent]:
    table: dict[str, Agent] = {}
    for agent in agents:
        if agent.name in table:
            raise ConfigurationError(
                f"Two agents are named {agent.name!r}.", todo="Give one of them another with Agent(name=...)."
            )
        table[agent.name] = agent
    if not table:
        raise ConfigurationError("A server needs an agent.", todo="Pass one, or several.")
    return table


def _words(wanted: StartRun) -> str:
    if isinstance(wanted.prompt, str):
        return wanted.prompt
    return "".join(part.text for part in wanted.prompt if isinstance(part, Text))


__all__ = ["Record", "RunRegistry"]
