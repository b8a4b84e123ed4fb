"""A step on Temporal begins when Temporal has its first heartbeat, and not without that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.client import AsyncActivityCancelledError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from quiesce import Agent
from quiesce.conversation.validity import user_message
from quiesce.fleet.temporal.activities import StepActivities
from quiesce.fleet.temporal.progress import RunProgress
from quiesce.fleet.temporal.records import NOT_BEGUN, HeartbeatDetails, StepResult, WorkflowInput, plain, read
from quiesce.models.scripted import ScriptedModel

pytestmark = pytest.mark.promise("P4", "P9")


class Server:
    """What Temporal says to the first heartbeat. It stands for the client, and for its handle of an activity."""

    def __init__(self, answer: Callable[[], Awaitable[None]]) -> None:
        self._answer = answer
        self.heartbeats: list[HeartbeatDetails] = []

    def get_async_activity_handle(self, **_: Any) -> Server:
        return self

    async def heartbeat(self, details: Any) -> None:
        self.heartbeats.append(read(details, HeartbeatDetails))
        await self._answer()


class Trial:
    """One model call on a worker."""

    def __init__(self, answer: Callable[[], Awaitable[None]]) -> None:
        self.model = ScriptedModel("Done.")
        self.server = Server(answer)
        self.environment = ActivityEnvironment(cast(Any, self.server))
        self._agent = Agent(self.model, name="agent")

    async def run(self) -> StepResult:
        step = RunProgress("run", WorkflowInput("agent", user_message("go"), "queue")).model_call()
        activities = StepActivities(self._agent, None, heartbeat=60)
        return read(await self.environment.run(activities.model_call, plain(step)), StepResult)


async def test_the_first_heartbeat_names_the_request_that_may_be_sent_next() -> None:
    async def accepted() -> None:
        assert not trial.model.requests

    trial = Trial(accepted)
    result = await trial.run()
    assert result.conversation.messages[-1].text == "Done."
    ((entry,),) = [each.entries for each in trial.server.heartbeats]
    assert (entry.model, entry.ended) == (trial.model.name, "open")
    assert entry.usage.output.high is None


async def test_a_step_that_was_given_to_another_worker_does_not_begin() -> None:
    async def refused() -> None:
        raise RPCError("activity not found", RPCStatusCode.NOT_FOUND, b"")

    trial = Trial(refused)
    with pytest.raises(ApplicationError, match="activity not found") as found:
        await trial.run()
    assert found.value.type == NOT_BEGUN
    assert not trial.model.requests


async def test_a_step_that_is_cancelled_before_it_begins_sends_nothing_and_has_a_receipt() -> None:
    async def cancelled() -> None:
        raise AsyncActivityCancelledError(ActivityCancellationDetails(cancel_requested=True))

    trial = Trial(cancelled)
    result = await trial.run()
    assert result.receipt.stop_reason == "cancelled"
    assert not trial.model.requests


async def test_a_worker_that_shuts_down_hands_over_what_it_has_not_begun() -> None:
    waiting = asyncio.Event()

    async def silent() -> None:
        waiting.set()
        await asyncio.Event().wait()

    trial = Trial(silent)
    task = asyncio.create_task(trial.run())
    await waiting.wait()
    trial.environment.cancel(ActivityCancellationDetails(worker_shutdown=True))
    with pytest.raises(ApplicationError, match="shutting down") as found:
        await task
    assert found.value.type == NOT_BEGUN
    assert not trial.model.requests
