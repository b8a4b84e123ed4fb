"""A `BaseException` or a `CancelledError` that a model, a hook or other code raises itself is an error, not a stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quiesce import Agent, Middleware, RunError, tool
from quiesce.cancellation.raised import is_own_error
from quiesce.conversation.validity import faults
from quiesce.errors import ModelProtocolError
from quiesce.events import AnswerStart, HookFailed, TextDelta
from quiesce.hooks import AfterModelCall, AfterRun, AfterToolCall, BeforeModelCall, BeforeRun, BeforeToolCall, OnMessage
from quiesce.messages import Outcome, ToolMessage
from quiesce.models.base import ModelRequest
from quiesce.testing import Call, ScriptedModel

pytestmark = pytest.mark.promise("P7")


class PanicException(BaseException):
    """As `pyo3_runtime.PanicException`: a Rust extension has panicked."""


ERRORS = [PanicException("index out of bounds"), asyncio.CancelledError("by itself")]


class Panicking(ScriptedModel):
    """Raises before its answer, or in the middle of it."""

    def __init__(self, error: BaseException, *, in_answer: bool) -> None:
        super().__init__(then="Yes.")
        self.error: BaseException | None = error
        self.in_answer = in_answer

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Any]]:
        error, self.error = self.error, None
        if error is None:
            async with super().stream(request) as deltas:
                yield deltas
        elif self.in_answer:
            yield self._begin(error)
        else:
            raise error

    async def _begin(self, error: BaseException) -> AsyncIterator[Any]:
        yield AnswerStart("m", "panicking")
        yield TextDelta("Some words. ")
        raise error


class PassingOn(Middleware[Any]):
    @asynccontextmanager
    async def model_call(self, call: Any, next: Any, /) -> AsyncGenerator[Any]:
        async with next(call) as deltas:
            yield deltas


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("in_answer", [False, True])
@pytest.mark.parametrize("middleware", [[], [PassingOn()]], ids=["direct", "middleware"])
def test_a_model_that_panics_has_failed(error: BaseException, in_answer: bool, middleware: list[Any]) -> None:
    agent = Agent(Panicking(error, in_answer=in_answer), middleware=middleware)
    with pytest.raises(ModelProtocolError, match=type(error).__name__) as raised:
        agent("Go")
    result: Any = raised.value.result
    assert (result.stop_reason, result.receipt.cause) == ("error", None)
    assert ("Some words." in result.text) is in_answer
    assert faults(agent.messages) == ()
    assert agent("And now?").stop_reason == "end_turn"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_hook_that_panics_is_reported_and_the_run_goes_on(error: BaseException) -> None:
    @tool
    async def look() -> str:
        return "seen"

    def panic(
        _: BeforeRun | BeforeModelCall | AfterModelCall | BeforeToolCall | AfterToolCall | OnMessage | AfterRun,
    ) -> None:
        raise error

    agent = Agent(ScriptedModel([Call("look")], then="Done."), tools=[look], hooks=[panic])

    async def main() -> None:
        run = agent.start("Go")
        events = [event async for event in run]
        result = await run
        assert (result.stop_reason, result.text) == ("end_turn", "Done.")
        failed = {event.event for event in events if isinstance(event, HookFailed)}
        assert failed >= {"BeforeRun", "BeforeModelCall", "BeforeToolCall", "AfterToolCall", "OnMessage"}
        assert type(error).__name__ in next(event.error for event in events if isinstance(event, HookFailed))

    asyncio.run(main())


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_instructions_that_panic_fail_the_run(error: BaseException) -> None:
    def instructions(_: Any) -> str:
        raise error

    with pytest.raises(RunError, match=type(error).__name__) as raised:
        Agent(ScriptedModel(then="Yes."), instructions=instructions)("Go")
    result: Any = raised.value.result
    assert (result.stop_reason, result.receipt.cause) == ("error", None)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_middleware_that_panics_around_a_tool_is_the_result_of_the_call(error: BaseException) -> None:
    class Panics(Middleware[Any]):
        async def tool_call(self, call: Any, next: Any, /) -> Any:
            raise error

    @tool
    async def look() -> str:
        return "seen"

    agent = Agent(ScriptedModel([Call("look")], then="Done."), tools=[look], middleware=[Panics()])
    result = agent("Go")
    assert result.stop_reason == "end_turn"
    (told,) = (each for message in result.messages if isinstance(message, ToolMessage) for each in message.results)
    assert (told.outcome, told.is_error) == (Outcome.COMPLETED, True)
    assert type(error).__name__ in told.text


@pytest.mark.promise("P7")
async def test_a_cancelled_error_is_a_stop_only_in_a_task_that_was_cancelled() -> None:
    async def judge() -> bool:
        try:
            await asyncio.sleep(0)
            raise asyncio.CancelledError
        except asyncio.CancelledError as error:
            return is_own_error(error)

    assert await asyncio.create_task(judge()) is True
    cancelled = asyncio.create_task(judge())
    await asyncio.sleep(0)
    cancelled.cancel()
    assert await cancelled is False
