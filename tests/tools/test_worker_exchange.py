"""What goes to a worker process with a call, and what comes back."""

from __future__ import annotations

import logging
import os
import threading

import oddities
import pytest
from tool_runs import agent_with, call, killable, results, run_async, stray_processes

from quiesce import ToolContext
from quiesce.conversation.validity import check
from quiesce.events import ToolProgress
from quiesce.messages import Outcome
from quiesce.tools.worker.pool import pool

pytestmark = pytest.mark.promise("P4")


# --- Asking a person -----------------------------------------------------------------------------------------------


@pytest.mark.promise("P2", "P3")
def test_a_person_can_be_asked_from_a_process() -> None:
    async def main() -> None:
        agent = agent_with(killable(oddities.ask_first))
        asked = await agent.invoke_async("go")
        assert asked.stop_reason == "interrupt"
        (colour,) = asked.interrupts
        assert (colour.name, colour.kind, colour.tool_name) == ("colour", "question", "ask_first")
        assert colour.reason == {"choices": ["red", "blue"]}
        again = await agent.answer_async({colour.id: "blue"})
        (size,) = again.interrupts
        assert (size.name, size.expires_at is not None) == ("size", True)
        done = await agent.answer_async({size.id: 7})
        result = results(done)["ask_first"]
        assert result.outcome is Outcome.COMPLETED
        assert result.text.startswith("7 blue ")
        assert int(result.text.split()[2]) != os.getpid()
        assert stray_processes() == []

    run_async(main())


@pytest.mark.promise("P2", "P4")
def test_a_question_from_a_process_can_be_dropped() -> None:
    async def main() -> None:
        agent = agent_with(killable(oddities.ask_first))
        assert (await agent.invoke_async("go")).stop_reason == "interrupt"
        outcome = await agent.invoke_async("never mind")
        assert outcome.stop_reason == "end_turn"
        check(agent.messages)

    run_async(main())


# --- What comes back -----------------------------------------------------------------------------------------------


def test_output_logging_progress_and_context_come_back(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        each = killable(oddities.log_and_report)
        state = {"given": "state"}
        agent = agent_with(each, state=state)
        run = agent.start("go")
        events = [event async for event in run]
        progress = [event.progress for event in events if isinstance(event, ToolProgress)]
        assert {"step": 1} in progress
        assert "".join(part.get("stdout", "") for part in progress) == "on stdout\n"
        assert "".join(part.get("stderr", "") for part in progress) == "on stderr\n"
        assert results(await run)[each.name].text == "state False log_and_report True call_1"
        assert "changed" not in state

    run_async(main())
    assert ("oddities.log", logging.WARNING, "careful with this") in caplog.record_tuples


def test_a_printed_line_comes_in_one_piece() -> None:
    def say() -> None:
        for _ in range(100):
            print("one", "two")

    async def main() -> None:
        run = agent_with(killable(say)).start("go")
        pieces = [event.progress["stdout"] async for event in run if isinstance(event, ToolProgress)]
        assert "".join(pieces) == "one two\n" * 100
        assert all(piece.endswith("\n") for piece in pieces)

    run_async(main())


def test_what_is_printed_is_read_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def say() -> None:
        print("é 漢 \udcff")

    async def main() -> None:
        run = agent_with(killable(say)).start("go")
        pieces = [event.progress["stdout"] async for event in run if isinstance(event, ToolProgress)]
        assert "".join(pieces) == "é 漢 ?\n"

    pool.shut_down()
    monkeypatch.setenv("LC_ALL", "en_US.ISO-8859-1")
    monkeypatch.setenv("PYTHONCOERCECLOCALE", "0")
    monkeypatch.setenv("PYTHONUTF8", "0")
    run_async(main())
    pool.shut_down()


def test_loggers_have_the_levels_that_they_have_in_the_host(caplog: pytest.LogCaptureFixture) -> None:
    def chatter() -> str:
        for name in ("quiesce_test.loud", "quiesce_test.loud.below", "quiesce_test.quiet"):
            logging.getLogger(name).debug("from %s", name)
        return "said"

    async def main() -> None:
        with caplog.at_level(logging.DEBUG, logger="quiesce_test.loud"):
            assert (await call(killable(chatter))).text == "said"
        assert (await call(killable(chatter))).text == "said"

    run_async(main())
    heard = [record.getMessage() for record in caplog.records if record.name.startswith("quiesce_test")]
    assert heard == ["from quiesce_test.loud", "from quiesce_test.loud.below"]


def test_a_record_that_cannot_be_put_into_words_is_no_failure_of_the_tool() -> None:
    def careless() -> str:
        logging.getLogger("quiesce_test").warning("%s and %s", "one")  # noqa: PLE1206
        return "done"

    async def main() -> None:
        run = agent_with(killable(careless)).start("go")
        printed = "".join([event.progress["stderr"] async for event in run if isinstance(event, ToolProgress)])
        assert "--- Logging error ---" in printed
        assert results(await run)["careless"].text == "done"

    run_async(main())


def test_what_a_forked_child_logs_is_in_the_output() -> None:
    def delegate() -> str:
        if os.fork() == 0:
            logging.getLogger("quiesce_test").warning("from the child")
            os._exit(0)
        os.wait()
        return "done"

    async def main() -> None:
        run = agent_with(killable(delegate)).start("go")
        printed = "".join([event.progress["stderr"] async for event in run if isinstance(event, ToolProgress)])
        assert printed == "WARNING:quiesce_test:from the child\n"

    run_async(main())


def test_exceptions_come_back_with_their_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        result = await call(killable(oddities.raise_deep))
        assert (result.text, result.is_error, result.outcome) == ("ValueError: deep down", True, Outcome.COMPLETED)

    with caplog.at_level(logging.DEBUG, logger="quiesce"):
        run_async(main())
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.exc_info is not None
    assert "in deeper" in str(record.exc_info[1].__cause__)


def test_an_exception_that_cannot_be_sent_is_told() -> None:
    result = run_async(call(killable(oddities.raise_unpicklable)))
    assert result.text == "Unpicklable: this and that"
    assert result.is_error


def test_a_result_that_cannot_be_sent_is_told() -> None:
    result = run_async(call(killable(oddities.return_unpicklable)))
    assert "finished, but what it returned cannot be sent from its process" in result.text
    assert result.outcome is Outcome.COMPLETED


def test_arguments_that_cannot_be_sent_are_told() -> None:
    def wants(value: int) -> str:
        return str(value)

    each = killable(wants)
    each.validate = lambda arguments: {
        "value": threading.Lock()
    }  # a validator may make anything of what the model wrote
    result = run_async(call(each, {"value": 1}))
    assert "cannot be sent to its process" in result.text
    assert result.is_error


class Unsendable:
    """Can be copied for each conversation, and not sent to another process."""

    def __deepcopy__(self, memo: object) -> Unsendable:
        return self

    def __reduce__(self) -> str:
        raise TypeError("not for other processes")


def test_state_that_cannot_be_sent_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Settings:
        number = 3

    def look(ctx: ToolContext) -> list[object]:
        return [*sorted(ctx.state), ctx.state["settings"].number]

    Settings.__module__, Settings.__qualname__ = "__main__", "Settings"
    monkeypatch.setattr("__main__.Settings", Settings, raising=False)  # as it is in a script
    state = {"settings": Settings(), "lock": Unsendable()}
    assert run_async(call(killable(look), state=state)).text == '["settings",3]'


def test_async_functions_and_generators_run_in_a_process_too() -> None:
    async def main() -> None:
        assert (await call(killable(oddities.asynchronous))).text == "async"
        agent = agent_with(killable(oddities.steps))
        run = agent.start("go")
        progress = [event.progress async for event in run if isinstance(event, ToolProgress)]
        assert progress == [1, 2]
        assert results(await run)["steps"].text == "2"

    run_async(main())


def test_big_arguments_and_results_pass() -> None:
    def double(text: str) -> str:
        return text * 2

    result = run_async(call(killable(double, max_result=None), {"text": "ab" * 1_000_000}))
    assert result.text == "ab" * 2_000_000
