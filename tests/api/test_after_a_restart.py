"""A session that was not used in this process yet: its messages and questions are there, and its answers work."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quiesce import Agent, Session, tool
from quiesce.errors import ConfigurationError, InterruptPending, InvalidAnswer, NothingToContinue, UnknownInterrupt
from quiesce.testing import Call, ScriptedModel

pytestmark = pytest.mark.promise("P2", "P8")


@tool(requires_approval=True)
def send() -> str:
    """Send it."""
    return "sent"


def restarted(path: Path, *answers: object, **options: object) -> Agent:
    """An agent as another process would make it: with a session object of its own."""
    model = ScriptedModel(*answers)  # type: ignore[arg-type]
    return Agent(model, tools=[send], session=Session("s", path / "s.db"), **options)  # type: ignore[arg-type]


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """A store in which a session waits for a person."""
    assert restarted(tmp_path, [Call("send")])("Send it.").stop_reason == "interrupt"
    return tmp_path


def test_messages_and_interrupts_load_the_session(asked: Path) -> None:
    agent = restarted(asked)
    assert agent.session is not None
    assert not agent.session.loaded
    assert agent.messages[0].text == "Send it."
    assert agent.session.loaded
    assert [each.id for each in restarted(asked).interrupts] == ["call_1:approval"]


def test_a_session_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    agent = restarted(tmp_path, "Hello.")
    assert (agent.messages, agent.interrupts) == ((), ())
    agent("Hi.")
    assert len(agent.messages) == 2


def test_in_an_event_loop_it_says_what_to_await(asked: Path) -> None:
    async def main() -> None:
        agent = restarted(asked, "Done.")
        assert agent.session is not None
        for name in ("messages", "interrupts"):
            with pytest.raises(ConfigurationError, match=r"await session\.load\(\)"):
                getattr(agent, name)
        await agent.session.load()
        assert [each.id for each in agent.interrupts] == ["call_1:approval"]
        assert (await agent.answer_async({each.id: True for each in agent.interrupts})).text == "Done."

    asyncio.run(main())


def test_in_an_event_loop_a_run_loads_it_too(asked: Path) -> None:
    async def main() -> None:
        agent = restarted(asked, "Done.")
        run = agent.start_answer({"call_1:approval": True})
        assert agent.messages == (), "the run that opens it has it"
        await run
        assert agent.messages[-1].text == "Done."

    asyncio.run(main())


def test_an_answer_goes_on_without_anything_being_loaded_before(asked: Path) -> None:
    result = restarted(asked, "Done.").answer({"call_1:approval": True})
    assert (result.text, result.receipt.calls[0].outcome) == ("Done.", "completed")


def test_answers_that_do_not_fit_are_refused_in_words_and_the_question_stays(asked: Path) -> None:
    with pytest.raises(InvalidAnswer, match=r"No answer was given\..*Answer at least one of: call_1:approval"):
        restarted(asked, "Done.").answer({})
    with pytest.raises(UnknownInterrupt, match=r"No interrupt 'other' is pending.*Asked right now: call_1:approval"):
        restarted(asked, "Done.").answer({"other": True})
    with pytest.raises(InvalidAnswer, match="Answers are a dict, not 'yes'"):
        restarted(asked, "Done.").answer("yes")  # type: ignore[arg-type]
    with pytest.raises(InterruptPending):
        restarted(asked, "Done.", on_prompt="refuse")("Another prompt.")
    assert [each.id for each in restarted(asked).interrupts] == ["call_1:approval"]
    assert restarted(asked, "Done.").answer({"call_1:approval": True}).text == "Done."


def test_answers_and_more_of_nothing_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UnknownInterrupt, match=r"^No interrupt is pending\..*Nothing is asked right now"):
        restarted(tmp_path).answer({})
    with pytest.raises(NothingToContinue):
        restarted(tmp_path).continue_()


def test_state_and_branches_load_the_session(tmp_path: Path) -> None:
    first = restarted(tmp_path, "Hello.")
    first.state["visits"] = 1
    first("Hi.")
    assert restarted(tmp_path).state == {"visits": 1}
    assert len(restarted(tmp_path).fork().messages) == 2

    async def main() -> None:
        for use in (lambda agent: agent.state, Agent.fork):
            with pytest.raises(ConfigurationError, match=r"await session\.load\(\)"):
                use(restarted(tmp_path))

    asyncio.run(main())


def test_what_is_changed_between_runs_is_kept_unless_another_process_changed_it(tmp_path: Path) -> None:
    first = restarted(tmp_path, "One.", "Three.")
    first.state["visits"] = 1
    first("Hi.")
    second = restarted(tmp_path, "Two.", "Four.")
    second.state["visits"] = 2
    assert second("Hi.").stop_reason == "end_turn"
    assert second.state == {"visits": 2}
    assert restarted(tmp_path).state == {"visits": 2}
    first.state["visits"] = 7
    first("Hi.")
    assert first.state == {"visits": 2}, "the other process has saved since"


def test_a_stop_before_the_session_is_loaded_withdraws_what_it_asks(asked: Path) -> None:
    agent = restarted(asked, "Never.", "Hello.")
    assert agent.cancel() == ()
    assert agent("Go on.").stop_reason == "cancelled"
    assert agent.interrupts == ()
    assert agent("Hi.").stop_reason == "end_turn"
    assert restarted(asked).interrupts == ()
