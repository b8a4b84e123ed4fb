"""An answer that a prompt or a limit cuts while the run goes on: nothing of it comes later, and all is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from quiesce import Agent, Limits, Middleware, ModelCall
from quiesce.conversation.validity import faults
from quiesce.events import AnswerEnd, Delta, TextDelta, ToolCallStart
from quiesce.hooks import OnMessage
from quiesce.messages import AssistantMessage, UserMessage
from quiesce.middleware import Send
from quiesce.testing import Say, ScriptedModel, Stall, run_virtual


class Deaf:
    """A model that takes no notice of being cut in its first answer: it speaks on later, and closes later still."""

    name = "deaf"
    price = None

    def __init__(self, *first: Delta, speaks_after: float, closes_after: float = 0.0) -> None:
        self._first = first
        self._speaks_after = speaks_after
        self._closes_after = closes_after
        self._answers = 0
        self.log: list[str] = []

    @asynccontextmanager
    async def stream(self, request: object) -> AsyncGenerator[AsyncIterator[Delta]]:
        self._answers += 1
        number = self._answers
        self.log.append(f"open {number}")
        try:
            yield self._deaf() if number == 1 else self._brief()
        finally:
            if number == 1:
                await asyncio.sleep(self._closes_after)
            self.log.append(f"close {number}")

    async def _deaf(self) -> AsyncGenerator[Delta]:
        for delta in self._first:
            yield delta
        until = asyncio.get_running_loop().time() + self._speaks_after
        while (left := until - asyncio.get_running_loop().time()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(left)
        yield TextDelta("LATE")
        yield AnswerEnd("end_turn")

    async def _brief(self) -> AsyncGenerator[Delta]:
        await asyncio.sleep(20)
        yield TextDelta("Done.")
        yield AnswerEnd("end_turn")


class Passing(Middleware):
    """Passes each request on."""

    def model_call(self, call: ModelCall, next: Send) -> Any:
        return next(call)


def check_nothing_late(result: Any, seen: list[Any]) -> None:
    assert "LATE" not in "".join(event.text for event in seen if isinstance(event, TextDelta))
    assert "LATE" not in str(result.messages)
    assert result.text == "Done."
    assert not faults(result.messages)


@pytest.mark.leaves("tasks")
@pytest.mark.promise("P3")
@pytest.mark.parametrize("mode", ["now", "after_tools"])
@pytest.mark.parametrize("middleware", [[], [Passing()]], ids=["direct", "middleware"])
def test_words_of_an_answer_that_was_steered_away_from_do_not_come_later(mode: str, middleware: list[Any]) -> None:
    async def main() -> None:
        run = Agent(Deaf(TextDelta("I will "), speaks_after=10), middleware=middleware).start("go")
        seen: list[Any] = []
        run.tap(seen.append)
        async for event in run:
            if isinstance(event, TextDelta) and event.text == "I will ":
                run.steer("No", mode=mode)
        check_nothing_late(await run, seen)

    run_virtual(main())


@pytest.mark.leaves("tasks")
@pytest.mark.promise("P3", "P6")
@pytest.mark.parametrize("middleware", [[], [Passing()]], ids=["direct", "middleware"])
def test_words_of_an_answer_that_a_limit_has_cut_do_not_come_later(middleware: list[Any]) -> None:
    async def main() -> None:
        words = [ToolCallStart("a", "look"), *[TextDelta("word ")] * 60]
        model = Deaf(*words, speaks_after=10)
        agent = Agent(model, limits=Limits(output_tokens=20), on_limit="answer", middleware=middleware)
        run = agent.start("go")
        seen: list[Any] = []
        run.tap(seen.append)
        check_nothing_late(await run, seen)

    run_virtual(main())


@pytest.mark.promise("P5")
@pytest.mark.parametrize("cut_by", ["prompt", "limit"])
def test_the_next_request_is_sent_when_the_one_before_has_hung_up(cut_by: str) -> None:
    async def main() -> None:
        words = [ToolCallStart("a", "look"), *[TextDelta("word ")] * 60]
        model = Deaf(*words, speaks_after=0, closes_after=0.2)
        limits = Limits(output_tokens=20 if cut_by == "limit" else None)
        run = Agent(model, limits=limits, on_limit="answer").start("go")
        if cut_by == "prompt":
            run.tap(lambda event: isinstance(event, TextDelta) and model.log == ["open 1"] and run.steer("No"))
        assert (await run).text == "Done."
        assert model.log == ["open 1", "close 1", "open 2", "close 2"]

    run_virtual(main())


@pytest.mark.promise("P3")
def test_hooks_are_called_for_the_cut_answer_and_for_the_prompt_that_cut_it() -> None:
    async def main() -> None:
        heard: list[Any] = []

        def hear(event: OnMessage) -> None:
            heard.append(event.message)

        run = Agent(ScriptedModel([Say("I will"), Stall()], "All right."), hooks=[hear]).start("go")
        async for event in run:
            if isinstance(event, TextDelta) and event.text.endswith("will"):
                run.steer("No")
        result = await run
        assert heard == list(result.messages)
        assert [type(each) for each in heard] == [UserMessage, AssistantMessage] * 2

    run_virtual(main())
