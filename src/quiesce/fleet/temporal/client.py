"""Runs on Temporal as their clients see them: start them, look at them, stop them, from any process."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from ..._exact import NotJSON, exact
from ..._threads.seconds import checked_seconds
from ...cancellation import Cause, Mode
from ...cancellation.cause import parse_mode
from ...conversation.validity import check, user_message
from ...errors import ConfigurationError, InvalidAnswer
from ...interrupts import Answers, Interrupt
from ...messages import Message, Prompt
from ...run.argument_checks import checked_timeout
from ..answers import decoded_answers
from ..records import OnWorkerLoss
from .records import ANSWER, STOP, WORKFLOW, StopRequest, TemporalRun, TemporalStopState, WorkflowInput, plain, read


class TemporalFleet:
    """The runs of a Temporal namespace. `queue` is the task queue of the workflows, and that of the workers."""

    def __init__(self, client: Client, *, queue: str = "quiesce") -> None:
        self._client: Final = client
        self._queue: Final = queue

    async def start(
        self,
        agent: str,
        prompt: Prompt,
        *,
        messages: Sequence[Message] = (),
        owner: str = "",
        timeout: float | None = None,  # noqa: ASYNC109 - of the run
        on_worker_loss: OnWorkerLoss = "continue",
        lease: float = 15.0,
        run_id: str | None = None,
    ) -> TemporalRun:
        """Start a run of the agent of this name, for workers that have it. `messages` is the conversation before it.

        A worker that gives no sign of life for `lease` seconds is lost. `run_id` is the id of the workflow. Raises
        `InvalidPrompt`, `InvalidConversation`, `ConfigurationError`, and what `temporalio` raises when the server does
        not take it.
        """
        before = tuple(messages)
        check(before)
        given = _checked(
            WorkflowInput(agent, user_message(prompt), self._queue, before, owner, timeout, on_worker_loss, lease)
        )
        checked_seconds("lease", lease, least=0.001)
        checked_timeout(timeout)
        run = TemporalRun(run_id or f"run-{uuid.uuid4().hex[:12]}", agent, owner)
        await self._client.start_workflow(
            WORKFLOW, given, id=run.id, task_queue=self._queue, memo={"agent": agent, "owner": owner}
        )
        return run

    async def find(self, run_id: str) -> TemporalRun | None:
        """The run with this id as it is now; None when there is none."""
        handle = self._handle(run_id)
        try:
            found = await handle.describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        if found.status is WorkflowExecutionStatus.COMPLETED:
            return await _result(handle)
        memo = await found.memo()
        is_running = found.status is WorkflowExecutionStatus.RUNNING
        return TemporalRun(
            run_id,
            memo.get("agent", ""),
            memo.get("owner", ""),
            "running" if is_running else "crashed",
            "" if is_running or found.status is None else found.status.name.lower(),
            stop=memo.get("stop", ""),
            interrupts=msgspec.convert(memo.get("interrupts", []), tuple[Interrupt, ...]),
        )

    async def rest(self, run_id: str, seconds: float | None = None) -> TemporalRun | None:
        """Wait until a run is at rest, or for so many seconds; gives the run as it is then. None when there is none."""
        try:
            async with asyncio.timeout(seconds):
                return await _result(self._handle(run_id))
        except (TimeoutError, WorkflowFailureError):
            return await self.find(run_id)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise

    async def stop(
        self,
        run_id: str,
        reason: str = "",
        *,
        mode: Mode | str = Mode.NOW,
        source: Any = "user",
        wait: float | None = None,
    ) -> TemporalStopState | None:
        """Stop a run. None when there is no such run.

        With `wait`, the answer comes when the run is at rest, or after so many seconds; the answer says how far the
        stop has come. `temporal workflow cancel` does the same, in mode `now`. Raises `UnknownMode`, and
        `ConfigurationError` for an unknown source.
        """
        cause = Cause(source, reason, parse_mode(mode), at=time.time(), clock=0.0)
        accepted = await self._signal(run_id, STOP, _checked(StopRequest(cause)))
        run = await (self.rest(run_id, wait) if wait and accepted else self.find(run_id))
        if run is None:
            return None
        return TemporalStopState(run, accepted, delivered=not run.is_active or bool(run.stop))

    async def answer(self, run_id: str, answers: Answers) -> bool:
        """Answer what the tool calls of a run ask, by the id of the interrupt. False for a run that has ended.

        An approval is answered with True, False, `Approve` or `Deny`; a question with any JSON-like value. Raises
        `InvalidAnswer` for what is none of these.
        """
        try:
            given: dict[str, Any] = exact(dict(answers), dict[str, Any])
            decoded_answers(given)
        except (NotJSON, msgspec.ValidationError) as error:
            raise InvalidAnswer(f"This is not an answer: {error}.") from None
        return await self._signal(run_id, ANSWER, given)

    async def _signal(self, run_id: str, name: str, given: dict[str, Any]) -> bool:
        try:
            await self._handle(run_id).signal(name, given)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return True

    def _handle(self, run_id: str) -> WorkflowHandle[Any, Any]:
        return self._client.get_workflow_handle(run_id, result_type=dict[str, Any])


def _checked(value: Struct) -> dict[str, Any]:
    """A value as JSON, if a workflow can read it: else Temporal would deliver it again and again."""
    given = plain(value)
    try:
        read(given, type(value))
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"This is not valid for a run on Temporal: {error}.") from None
    return given


async def _result(handle: WorkflowHandle[Any, Any]) -> TemporalRun:
    return read(await handle.result(), TemporalRun)
