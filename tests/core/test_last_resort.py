"""What must hold even when something else is broken."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from quiesce import Agent, CancellationToken, Session
from quiesce._threads.background_loop import portal
from quiesce._threads.latch import Latch
from quiesce.errors import ServerError
from quiesce.events import AnswerEnd, Event, RunEnded, TextDelta
from quiesce.hooks import BeforeRun, OnStop
from quiesce.run import handle as run_module
from quiesce.run import settle
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.testing import Fail, Raw, Say, ScriptedModel, Stall
from quiesce.usage import register_vocabulary

pytestmark = pytest.mark.promise("P7", "P8")


def test_ctrl_c_inside_a_callback_is_raised_once_all_have_been_told() -> None:
    token = CancellationToken()
    told: list[str] = []

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    token.on_cancel(interrupted)
    token.on_cancel(lambda _: told.append("callback"))
    token.child().on_cancel(lambda _: told.append("child"))
    with pytest.raises(KeyboardInterrupt):
        token.cancel()
    assert told == ["callback", "child"]


def test_a_run_that_cannot_even_settle_lets_its_waiters_go(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(state: Any) -> None:
        raise RuntimeError("a bug in settling")

    async def broken_too(state: Any) -> None:
        raise RuntimeError("a bug in settling")

    monkeypatch.setattr(run_module, "settle", broken_too)
    monkeypatch.setattr(run_module, "settle_at_once", broken)

    async def main() -> None:
        agent = Agent(ScriptedModel("Hello."))
        run = agent.start("Go")
        with pytest.raises(RuntimeError, match="a bug in settling"):
            await asyncio.wait_for(run, 5)
        events = await asyncio.wait_for(_all_events(run), 5)
        assert [(each.stop_reason, each.error) for each in events if isinstance(each, RunEnded)] == [
            ("error", "a bug in settling")
        ]
        assert not agent.active_runs
        assert agent.conversation.holder is None

    asyncio.run(main())


def test_a_vocabulary_that_raises_lets_the_waiters_go() -> None:
    def count(text: str) -> int:
        if "Hello" in text:
            raise ValueError("it cannot be counted")
        return len(text)

    register_vocabulary("raises", count)

    async def main() -> None:
        model = ScriptedModel("Hello.")
        model.tokenizer = "raises"
        agent = Agent(model)
        run = agent.start("Go")
        with pytest.raises(ValueError, match="it cannot be counted"):
            await asyncio.wait_for(run, 5)
        assert isinstance((await asyncio.wait_for(_all_events(run), 5))[-1], RunEnded)
        assert agent.conversation.holder is None

    asyncio.run(main())


@pytest.mark.promise("P4", "P9")
@pytest.mark.parametrize("broken", ["_stop_everything", "_save_end"])
def test_a_run_whose_settling_breaks_does_not_say_that_its_end_is_saved(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    async def break_down(*_: object) -> None:
        raise RuntimeError("a bug in settling")

    monkeypatch.setattr(settle, broken, break_down)

    async def main() -> None:
        run = Agent(ScriptedModel("Hello."), session=Session("s", MemoryStore())).start("Go")
        receipt = await asyncio.wait_for(run.stopped(), 5)
        assert receipt.saved is False
        assert "The run ended before it could be saved." in receipt.unsaved

    asyncio.run(main())


async def _all_events(run: Any) -> list[Event]:
    return [event async for event in run.events()]


def test_a_tap_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Event] = []

    def bad(_: Event) -> None:
        raise ValueError("a bad tap")

    async def main() -> None:
        run = Agent(ScriptedModel("Hello.")).start("Go")
        run.tap(bad)
        run.tap(heard.append)
        assert (await run).text == "Hello."

    with caplog.at_level(logging.CRITICAL, "quiesce"):
        asyncio.run(main())
    assert isinstance(heard[-1], RunEnded)


def test_a_fork_has_hooks_of_its_own() -> None:
    heard: list[str] = []
    agent = Agent(ScriptedModel(then="Yes."))
    twin = agent.fork()

    @twin.hook()
    def hear(event: BeforeRun) -> None:
        heard.append(event.run_id)

    async def main() -> None:
        await agent.invoke_async("One")
        assert heard == []
        await twin.invoke_async("Two")
        assert len(heard) == 1

    asyncio.run(main())


def test_ctrl_c_while_a_run_is_being_started_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has no handle yet cannot stop it: `start()` does."""
    causes: list[Any] = []
    agent = Agent(ScriptedModel([Stall()]))
    agent.hook(OnStop)(lambda event: causes.append(event.cause))
    portal()  # now, so that the next wait is the one for the run
    monkeypatch.setattr(Latch, "result", _interrupted_after_the_first(Latch.result))
    with pytest.raises(KeyboardInterrupt):
        agent.start("Go")
    assert agent.active_runs == ()
    assert [cause.source for cause in causes] == ["signal"]


def _interrupted_after_the_first(original: Any) -> Any:
    calls: list[int] = []

    def result(self: Any, timeout: float | None = None) -> Any:
        found = original(self, timeout)
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return found

    return result


def test_a_model_that_fails_after_its_last_word_has_answered() -> None:
    model = ScriptedModel([Say("Hello."), Raw(AnswerEnd()), Fail(ServerError("late"))], "Hello again.")
    heard: list[Event] = []

    async def main() -> str:
        run = Agent(model).start("Go")
        run.tap(heard.append)
        return (await run).text

    assert asyncio.run(main()) == "Hello."
    assert "".join(event.text for event in heard if isinstance(event, TextDelta)) == "Hello."
    assert len(model.requests) == 1
