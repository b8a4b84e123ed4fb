"""Starting runs: from a prompt, from the answers to an interrupt, or from where a stopped run was cut."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, Final

import anyio

from ..agent import AnyAgent
from ..errors import InterruptError, SessionBusy
from ..hooks import BeforeApproval, OnLateOutcome
from ..interrupts import Answers
from ..messages import Text, UserMessage
from ..run.handle import Run
from ..run.options import RunOptions
from ..sessions import Session
from .event_log import MemoryLog
from .idempotency import IdempotencyKeys, check_same_request, fingerprint
from .live_run import LiveRun
from .problems import Problem
from .registry import ServedRun
from .run_metadata import PROMPT_LENGTH, RunMetadata
from .schemas import StartRun
from .sessions import check_session_name
from .stored_log import JournaledLog, StoredEvents
from .stored_session import StartedRun, StoredSession, name_for_one_run

if TYPE_CHECKING:
    from .services import Services


# Seconds that the response to an answer waits for the store. After that the answer is on its way, and the run shows it.
_BEGIN_WAIT: Final = 10.0


class RunStarter:
    """Starts runs within the quotas and registers them. Only for the server's own loop."""

    def __init__(self, services: Services) -> None:
        self._services: Final = services
        self._idempotency_keys: Final = IdempotencyKeys()

    async def started_earlier(self, owner: str, request: StartRun, idempotency_key: str | None) -> ServedRun | None:
        """The run that this request, with its idempotency key, has started before, if there is one.

        Also reads the session that the request names, or that it would be given, so that `start()` finds it in memory.
        Raises `Problem`, or a `StoreError`.
        """
        if request.session is not None:
            check_session_name(request.session)
        name = self._session_name(owner, request, idempotency_key)
        started = None if idempotency_key is None else self._idempotency_keys.find(owner, idempotency_key)
        if name is not None and started is None:
            session = await self._services.history.session(owner, name)
            if idempotency_key is not None and session is not None and isinstance(session.conversation, StoredSession):
                started = session.conversation.started_by(idempotency_key)
        if started is None:
            return None
        check_same_request(started.fingerprint, request)
        run = await self._services.history.run(owner, started.run_id)
        if run is None:
            raise Problem(410, "run_forgotten", f"This request started run {started.run_id}, which has been deleted.")
        return run

    def start(
        self, owner: str, request: StartRun, idempotency_key: str | None, options: RunOptions[Any] | None = None
    ) -> tuple[ServedRun, bool]:
        """Start a run, or find the one that this idempotency key started; the flag says whether it is new.

        Nothing in here waits, so two requests with the same idempotency key cannot both start a run. Raises `Problem`.
        """
        started = None if idempotency_key is None else self._idempotency_keys.find(owner, idempotency_key)
        if started is not None:
            check_same_request(started.fingerprint, request)
            return self._services.runs.get(owner, started.run_id), False
        self._services.quotas.check_new_run(owner)
        agent, sessions = self._services.agents.get(request.agent), self._services.sessions
        session = self._session_name(owner, request, idempotency_key)
        is_new_session = session is not None and sessions.find(owner, session) is None
        conversation = (
            agent.conversation.branch() if session is None else sessions.open(owner, session, agent).conversation
        )
        prompt = request.prompt if isinstance(request.prompt, str) else UserMessage(tuple(request.prompt))
        given: RunOptions[Any] = {"timeout": request.timeout, "conversation": conversation, "owner": owner}
        given.update(options or {})
        given["on_busy"] = request.on_busy
        try:
            run = self._isolated(agent).start(prompt, **given)
        except BaseException:
            if session is not None and is_new_session:
                sessions.drop(owner, session)
            raise
        served = self._register(run, self._info(owner, agent, session, request))
        if idempotency_key is not None:
            started = StartedRun(run.id, fingerprint(request))
            self._idempotency_keys.remember(owner, idempotency_key, started)
            if isinstance(conversation, StoredSession):
                conversation.note_request(idempotency_key, started)
        return served, True

    def _session_name(self, owner: str, request: StartRun, idempotency_key: str | None) -> str | None:
        """The session of a run: a stored run needs one with a name. None for one that is not stored and names none."""
        if request.session is not None or not self._services.sessions.are_stored:
            return request.session
        return name_for_one_run(uuid.uuid4().hex if idempotency_key is None else f"{owner}\n{idempotency_key}")

    def follow_up(
        self, earlier: ServedRun, answers: Answers | None, options: RunOptions[Any] | None = None
    ) -> tuple[ServedRun, bool]:
        """Go on in the conversation of a run: with answers, or with None where it was cut; whether in a new run.

        Answers go to the run that executes the turn, while one does. Raises `Problem`, or what `agent.start` raises.
        """
        info = earlier.info
        if earlier.run is not None and not answers:
            raise Problem(409, "running", "The run has not ended.", todo="Wait for it, or stop it.")
        agent, conversation = self._isolated(info.agent), earlier.conversation
        if conversation.holder is None:
            self._services.quotas.check_new_run(info.owner)
        given: RunOptions[Any] = {"conversation": conversation, "on_busy": "refuse", "owner": info.owner}
        given.update(options or {})
        run = agent.start_continue(**given) if answers is None else agent.start_answer(answers, **given)
        self._services.run_lists.run_changed(earlier)
        known = self._services.runs.of(info.owner).get(run.id)
        if known is not None:
            self._services.run_lists.run_changed(known)
            return known, False
        request = StartRun(info.prompt, on_disconnect=info.on_disconnect, mode=info.mode)
        return self._register(run, self._info(info.owner, info.agent, info.session, request)), True

    async def wait_for_begin(self, run: ServedRun | None) -> None:
        """Wait, for a while, until a run has begun: what it was started with is in the store, or it has failed."""
        if isinstance(run, LiveRun):
            with anyio.move_on_after(_BEGIN_WAIT):
                await run.log.read(0)

    async def check_begun(self, run: ServedRun) -> None:
        """Wait, for a while, until a run has begun. Raises the error of one that could not; that run is deleted.

        An `InterruptError` when its answers came too late, or `SessionBusy` when another server has its session.
        """
        await self.wait_for_begin(run)
        if run.result is not None and isinstance(run.result.error, InterruptError | SessionBusy):
            self._idempotency_keys.forget(run.info.owner, run.id)
            await self._services.history.delete_run(run)
            raise run.result.error

    def _info(self, owner: str, agent: AnyAgent, session: str | None, request: StartRun) -> RunMetadata:
        grace = request.disconnect_grace
        return RunMetadata(
            owner,
            agent,
            session,
            _prompt_text(request)[:PROMPT_LENGTH],
            time.time(),
            on_disconnect=request.on_disconnect or self._services.settings.on_disconnect,
            disconnect_grace=self._services.settings.disconnect_grace if grace is None else grace,
            mode=request.mode,
        )

    def _register(self, run: Run, info: RunMetadata) -> LiveRun:
        on_change = self._services.run_lists.run_changed
        live = LiveRun(run, self._new_log(run), info, on_end=self._run_ended, on_change=on_change)
        self._services.runs.add(live)
        on_change(live)
        return live

    def _run_ended(self, run: LiveRun) -> None:
        self._services.retention.run_ended(run)
        cause = None if run.receipt is None else run.receipt.cause
        if cause is not None and cause.source not in ("user", "remote"):  # a request was noted when it came
            detail = f"{cause.mode}: {cause.reason}" if cause.reason else str(cause.mode)
            self._services.records.audit.note_run("stop", run.id, run.info, detail, str(cause.source))

    def _new_log(self, run: Run) -> MemoryLog:
        conversation = run.conversation
        if not isinstance(conversation, Session):
            return MemoryLog(self._services.settings.log_bytes)
        return JournaledLog(self._services.settings.log_bytes, StoredEvents(conversation, run.id))

    def _isolated(self, agent: AnyAgent) -> AnyAgent:
        """A fork of the agent for one run, so that its ledger and `agent.cancel()` concern no other owner's run."""
        fork = agent.fork(at=0)
        fork.hook(OnLateOutcome)(self._on_late_outcome)
        fork.hook(BeforeApproval)(self._before_approval)
        return fork

    async def _before_approval(self, event: BeforeApproval) -> None:
        """Approve a call that an approval given in advance covers."""
        run = self._services.runs.find(event.run_id)
        approval = None if run is None else await self._services.records.approvals.decide(run.info, event)
        if run is not None and approval is not None:
            tool, who = event.interrupt.tool_name, f"approval {approval.id}"
            self._services.records.audit.note_run("approve", run.id, run.info, tool, who)

    def _on_late_outcome(self, event: OnLateOutcome) -> None:
        run = self._services.runs.find(event.run_id)
        if run is not None:
            self._services.run_lists.run_changed(run)


def _prompt_text(request: StartRun) -> str:
    if isinstance(request.prompt, str):
        return request.prompt
    return "".join(part.text for part in request.prompt if isinstance(part, Text))
