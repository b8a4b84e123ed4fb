"""`check_model`: what a model must do, and what it is told when it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from quiesce.errors import ConnectionFailed, ModelProtocolError
from quiesce.events import Delta, TextDelta
from quiesce.models.base import ModelRequest
from quiesce.testing import Drop, Pause, Say, ScriptedModel, check_model, run_virtual

pytestmark = pytest.mark.promise("P1", "P2")


def test_a_good_model_passes() -> None:
    run_virtual(check_model(ScriptedModel(then=[Say("Hello, you.", pause=0.1), Pause(1)])))


@pytest.mark.parametrize("answer", [[Say("Hello"), Drop()], [Say(" ")]])
def test_an_answer_without_an_end_or_without_words_is_found(answer: list[object]) -> None:
    with pytest.raises(ModelProtocolError):
        run_virtual(check_model(ScriptedModel(then=answer)))  # type: ignore[arg-type]


class _Stubborn(ScriptedModel):
    """Takes a cancellation for something to be ignored."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        async with super().stream(request) as deltas:
            with suppress(asyncio.CancelledError):
                yield deltas


def test_a_model_that_swallows_cancellation_is_found() -> None:
    with pytest.raises(ModelProtocolError, match="swallowed"):
        run_virtual(check_model(_Stubborn(then="Hello.")))


class _Clinging(ScriptedModel):
    """Does not let go."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        async with super().stream(request) as deltas:
            seen = [delta async for delta in deltas]

            async def replay() -> AsyncGenerator[Delta]:
                for delta in seen:
                    yield delta

            yield replay()
            if isinstance(seen[1], TextDelta) and len(self.requests) > 1:
                await asyncio.sleep(60)


def test_a_model_that_does_not_let_go_is_found() -> None:
    with pytest.raises(ModelProtocolError, match="did not close within"):
        run_virtual(check_model(_Clinging(then="Hello.")))


class _Slow(ScriptedModel):
    """Thinks for a while before it says anything."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        await asyncio.sleep(30)
        async with super().stream(request) as deltas:
            yield deltas


def test_a_model_that_takes_its_time_is_not_taken_for_one_that_does_not_let_go() -> None:
    run_virtual(check_model(_Slow(then="Hello.")))


class _Twice(ScriptedModel):
    """Is away when it is asked for the third time."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        if len(self.requests) == 2:
            raise ConnectionFailed("gone")
        async with super().stream(request) as deltas:
            yield deltas


def test_a_model_that_fails_when_it_is_asked_again_leaves_no_task() -> None:
    async def main() -> set[str]:
        with pytest.raises(ModelProtocolError, match="raised instead"):
            await check_model(_Twice(then="Hello."))
        return {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}  # type: ignore[arg-type]

    assert run_virtual(main()) == set()


class _Mute(ScriptedModel):
    """Answers so often, and then never."""

    def __init__(self, answers: int) -> None:
        super().__init__(then="Hello.")
        self._silent_after = answers

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        if len(self.requests) == self._silent_after:
            await asyncio.Event().wait()
        async with super().stream(request) as deltas:
            yield deltas


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_a_model_that_never_answers_is_found(answers: int) -> None:
    async def main() -> None:
        async with asyncio.timeout(86_400):
            await check_model(_Mute(answers))

    with pytest.raises(ModelProtocolError, match="did not answer within"):
        run_virtual(main())
