"""Workloads with middleware: each is stopped at every point, from every source."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from quiesce import (
    Agent,
    ConcurrencyLimit,
    FallbackModels,
    InputGuardrail,
    Middleware,
    ModelCall,
    OutputGuardrail,
    RateLimit,
    Retry,
    RunContext,
    ToolCallRequest,
)
from quiesce.errors import Overloaded, ServerError
from quiesce.events import Delta, Event, RunEnded, TextDelta
from quiesce.middleware import Send
from quiesce.models.base import ModelRequest
from quiesce.testing import Call, Drop, Fail, Harness, Pause, Say, ScriptedModel, Used
from quiesce.testing.scenario import WatchedRun
from tests.injection.registry import Workloads
from tests.injection.tools import quick, slow

WORKLOADS = Workloads()
workload = WORKLOADS.add


class Waiting(Middleware[Any]):
    """Waits before, inside and after everything."""

    @asynccontextmanager
    async def model_call(self, call: ModelCall[Any], next: Send[Any], /) -> AsyncGenerator[AsyncIterator[Delta]]:
        await asyncio.sleep(0.1)
        async with next(call) as deltas:
            await asyncio.sleep(0.1)
            yield self._slowly(deltas)
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)

    async def _slowly(self, deltas: AsyncIterator[Delta]) -> AsyncGenerator[Delta]:
        async for delta in deltas:
            await asyncio.sleep(0.1)
            yield delta

    async def tool_call(self, call: ToolCallRequest[Any], next: Any, /) -> Any:
        await asyncio.sleep(0.1)
        result = await next(call)
        await asyncio.sleep(0.1)
        return result


class Twice(Middleware[Any]):
    """Asks once on the side, then answers with a second request."""

    @asynccontextmanager
    async def model_call(self, call: ModelCall[Any], next: Send[Any], /) -> AsyncGenerator[AsyncIterator[Delta]]:
        async with next(call) as deltas:
            draft = "".join([delta.text async for delta in deltas if isinstance(delta, TextDelta)])
        async with next(call.replace(instructions=f"Improve: {draft}")) as deltas:
            yield deltas


def check_ledger(harness: Harness, *models: ScriptedModel) -> None:
    """When the run has ended, each request that a model was sent is in its ledger, under the name of that model."""
    sent: list[tuple[WatchedRun, dict[str, int]]] = []

    def follow(watched: WatchedRun) -> None:
        def note(event: Event) -> None:
            if isinstance(event, RunEnded):
                sent.append((watched, {model.name: len(model.requests) for model in models}))

        watched.run.tap(note)

    def check() -> None:
        for watched, counts in sent[:1]:
            result = watched.run.inspect().result
            assert result is not None
            booked = [entry.model for entry in result.usage.entries]
            assert counts == {model.name: booked.count(model.name) for model in models}

    harness.on_start(follow)
    harness.on_close(check)


@workload
async def middleware_that_waits(harness: Harness) -> None:
    model = ScriptedModel([Say("Look: ", pause=0.1), Call("slow"), Call("quick")], Say("Done."), then="Yes.")
    check_ledger(harness, model)
    await harness.invoke(Agent(model, tools=[slow, quick], middleware=[Waiting()]), "Go")


@workload
async def two_requests_for_one_answer(harness: Harness) -> None:
    model = ScriptedModel([Say("Draft.", pause=0.1), Used(9, 3)], [Say("Better.", pause=0.1), Used(9, 3)], then="Yes.")
    check_ledger(harness, model)
    await harness.invoke(Agent(model, middleware=[Twice()]), "Go")


@workload
async def fallback(harness: Harness) -> None:
    first = ScriptedModel([Pause(0.1), Fail(Overloaded("busy"))], then=Fail(Overloaded("busy")), name="a")
    second = ScriptedModel([Pause(0.1), Drop()], then=Drop(), name="b")
    third = ScriptedModel([Pause(0.1), Fail(ServerError("oops"))], Say("At last.", pause=0.1), then="Yes.", name="c")
    agent = Agent(first, middleware=[FallbackModels(second, third)], retry=Retry(jitter=0))
    check_ledger(harness, first, second, third)
    await harness.invoke(agent, "Go")


class ClosesSlowly(ScriptedModel):
    """A model whose connection takes a moment to close, which is not to be cut."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        async with super().stream(request) as deltas:
            try:
                yield deltas
            finally:
                await asyncio.sleep(0.1)


class Patient(Middleware[Any]):
    """Waits long after each request."""

    @asynccontextmanager
    async def model_call(self, call: ModelCall[Any], next: Send[Any], /) -> AsyncGenerator[AsyncIterator[Delta]]:
        async with next(call) as deltas:
            async for _ in deltas:
                pass
        await asyncio.sleep(5)
        async with next(call) as deltas:
            yield deltas
        await asyncio.sleep(5)


@workload
async def a_connection_that_closes_slowly(harness: Harness) -> None:
    harness.extra_time = 0.1
    model = ClosesSlowly(Say("One."), Say("Two."), then="Yes.")
    check_ledger(harness, model)
    await harness.invoke(Agent(model, middleware=[Patient()]), "Go")


async def _is_bad(_: RunContext[Any], text: str) -> str | None:
    await asyncio.sleep(0.1)
    return "bad words" if "bad" in text else None


@workload
async def guardrails_that_pass(harness: Harness) -> None:
    guardrails = [InputGuardrail(_is_bad), OutputGuardrail(_is_bad)]
    model = ScriptedModel([Say("Fine ", pause=0.1), Call("quick")], Say("words.", pause=0.1), then="Yes.")
    await harness.invoke(Agent(model, tools=[quick], middleware=guardrails), "Go")


@workload
async def an_input_guardrail_that_stops(harness: Harness) -> None:
    harness.expect_cause("guardrail")
    await harness.invoke(Agent(ScriptedModel(then="Yes."), middleware=[InputGuardrail(_is_bad)]), "bad")


@workload
async def an_output_guardrail_that_stops(harness: Harness) -> None:
    harness.expect_cause("guardrail")
    model = ScriptedModel(Say("Some bad words.", pause=0.1), then="Yes.")
    await harness.invoke(Agent(model, middleware=[OutputGuardrail(_is_bad)]), "Go")


@workload
async def an_output_guardrail_that_holds(harness: Harness) -> None:
    harness.expect_cause("guardrail")
    model = ScriptedModel(Say("Some bad words.", pause=0.1), then="Yes.")
    await harness.invoke(Agent(model, middleware=[OutputGuardrail(_is_bad, hold=True)]), "Go")


@workload
async def waiting_for_a_slot(harness: Harness) -> None:
    limit = ConcurrencyLimit(1)
    busy = Agent(ScriptedModel(Say("I am busy.", pause=0.5), then="Yes."), middleware=[limit])
    other = harness.start(busy, "Go", target=False)
    await asyncio.sleep(0.1)
    model = ScriptedModel(Say("My turn.", pause=0.1), then="Yes.")
    await harness.invoke(Agent(model, middleware=[limit]), "Go", target=True)
    await other


@workload
async def waiting_for_the_rate_limit(harness: Harness) -> None:
    limit = RateLimit(requests=1, tokens=1000, per=5)
    model = ScriptedModel([Say("One.", pause=0.1), Call("quick"), Used(100, 10)], "Two.", then="Yes.")
    await harness.invoke(Agent(model, tools=[quick], middleware=[limit]), "Go")
