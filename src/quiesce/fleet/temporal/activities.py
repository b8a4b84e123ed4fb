"""The activities of an agent: a model call, and one tool call."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from msgspec.structs import replace
from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError

from ...agent import AnyAgent
from ...cancellation import Cause, Mode
from ...run.handle import Run
from ...usage.ledger import NOTHING_KNOWN, LedgerEntry
from .receipts import CANCELLED, SHUTDOWN
from .records import MODEL_CALL, MORE_URGENT, NOT_BEGUN, TOOL_CALL, HeartbeatDetails, RunInfo, StepInput, plain, read
from .step import start_step, step_result

_log: Final = logging.getLogger("quiesce.fleet")

StepDeps: TypeAlias = Callable[[RunInfo], object | Awaitable[object]]


class StepActivities:
    """The activities of one agent on a worker. `heartbeat` is the time between two heartbeats, in seconds."""

    def __init__(self, agent: AnyAgent, deps: StepDeps | None, heartbeat: float) -> None:
        self._agent: Final = agent
        self._deps: Final = deps
        self._heartbeat: Final = heartbeat

    @activity.defn(name=MODEL_CALL)
    async def model_call(self, given: dict[str, Any]) -> dict[str, Any]:
        """Send the conversation to the model; gives the answer, or what was kept of it."""
        return await self._perform(read(given, StepInput))

    @activity.defn(name=TOOL_CALL)
    async def tool_call(self, given: dict[str, Any]) -> dict[str, Any]:
        """Make one tool call; gives its result, or how it was stopped."""
        return await self._perform(read(given, StepInput))

    async def _perform(self, step: StepInput) -> dict[str, Any]:
        is_cancelled = not await _begin(self._first_heartbeat(step))
        run = start_step(self._agent, step, await self._made_deps(step.run))
        if is_cancelled:
            run.cancel(CANCELLED.reason, source=CANCELLED.source)
        beating = asyncio.create_task(self._beat(run, step))
        try:
            await _settled(run, follows_urgency=bool(step.call_id))
        finally:
            beating.cancel()
        return plain(step_result(run))

    async def _made_deps(self, run: RunInfo) -> tuple[Any, ...]:
        if self._deps is None:
            return ()
        made = self._deps(run)
        return (await made if inspect.isawaitable(made) else made,)

    def _first_heartbeat(self, step: StepInput) -> HeartbeatDetails:
        """What the ledger gets if the worker is lost before its next heartbeat: a request that may have been sent."""
        if step.call_id:
            return HeartbeatDetails()
        return HeartbeatDetails((LedgerEntry("", step.run.id, self._agent.config.model.name, 1, 1),))

    async def _beat(self, run: Run[Any], step: StepInput) -> None:
        """Tell Temporal that the worker is alive, and what the ledger gets if this is its last heartbeat."""
        while True:
            await asyncio.sleep(self._heartbeat)
            activity.heartbeat(plain(HeartbeatDetails(_if_lost(run, is_model_call=not step.call_id))))


async def _begin(first: HeartbeatDetails) -> bool:
    """Wait until Temporal has the first heartbeat. Whether the step is still wanted: it may be cancelled already.

    So the workflow knows of a lost activity without a heartbeat that it has done nothing, and a worker that was frozen
    does not begin what was given to another one. Raises an `ApplicationError` of the type `NOT_BEGUN`.
    """
    token = activity.info().task_token
    try:
        await activity.client().get_async_activity_handle(task_token=token).heartbeat(plain(first))
    except AsyncActivityCancelledError:
        return False
    except RPCError as error:
        raise _not_begun(str(error)) from error
    except asyncio.CancelledError:
        if _cause() is SHUTDOWN:
            raise _not_begun(SHUTDOWN.reason) from None
        raise
    return True


def _not_begun(why: str) -> ApplicationError:
    """For Temporal's log it is no failure."""
    category = ApplicationErrorCategory.BENIGN
    return ApplicationError(f"The step has not begun: {why}", type=NOT_BEGUN, category=category)


def _if_lost(run: Run[Any], *, is_model_call: bool) -> tuple[LedgerEntry, ...]:
    """The requests of a step whose worker is lost. One that had not ended, or was sent since, has an unknown usage."""
    found = tuple(
        each if each.ended != "open" else replace(each, usage=NOTHING_KNOWN, cost=None) for each in run.ledger.entries
    )
    if not is_model_call or any(each.ended == "open" for each in found):
        return found
    now = run.inspect()
    return (*found, LedgerEntry("", run.id, now.config.model.name, now.turn, now.attempt + 1))


async def _settled(run: Run[Any], *, follows_urgency: bool) -> None:
    """Wait until the run of a step is at rest. A cancellation stops it; what it has kept is the activity's result.

    Raises `CancelledError`, when the run is at rest, for a cancellation that Temporal does not want a result of.
    """
    task = asyncio.current_task()
    assert task is not None
    following: asyncio.Task[None] | None = None
    is_outside = False
    while not run.done:
        try:
            await run.stopped()
        except asyncio.CancelledError:
            cause = _cause()
            is_outside |= cause is None
            stop = cause or CANCELLED
            run.cancel(stop.reason, source=stop.source)
            task.uncancel()
            if follows_urgency and following is None:
                following = asyncio.create_task(_follow_urgency(run))
    if following is not None:
        following.cancel()
        await asyncio.wait((following,))
    if is_outside:
        raise asyncio.CancelledError


def _cause() -> Cause | None:
    """Why Temporal has cancelled the activity; None when it was not Temporal, or when it drops the result."""
    details = activity.cancellation_details()
    if details is not None and details.cancel_requested:
        return CANCELLED
    return SHUTDOWN if details is not None and details.worker_shutdown else None


async def _follow_urgency(run: Run[Any]) -> None:
    """Make the stop of a tool as urgent as that of the workflow: the cancellation of an activity has no mode."""
    info, mode = activity.info(), Mode.NOW
    assert info.workflow_id is not None
    workflow: Any = activity.client().get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id)
    try:
        while mode is not Mode.KILL:
            mode = Mode(await workflow.execute_update(MORE_URGENT, mode.value, result_type=str))
            run.cancel(mode=mode, source="remote")
    except WorkflowUpdateRPCTimeoutOrCancelledError:  # the SDK's word for the cancellation of this task
        pass
    except Exception as error:  # the stop is under way, with the tool's own grace
        _log.warning("run %s: whether its stop becomes more urgent cannot be read: %s", info.workflow_id, error)
