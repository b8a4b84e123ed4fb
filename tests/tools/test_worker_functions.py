"""How a tool's function gets into a worker process, and what cannot."""

from __future__ import annotations

import os
import threading

import hazards
import pytest
from tool_runs import call, killable, run_async

from quiesce import Agent, tool
from quiesce.errors import ConfigurationError, InvalidTool
from quiesce.models.scripted import ScriptedModel
from quiesce.tools.tool import Tool

pytestmark = pytest.mark.promise("P1", "P4", "P5")


def test_a_function_inside_another_goes_by_value() -> None:
    offset = 10

    def twice(number: int) -> int:
        return 2 * number

    def compute(number: int, *, extra: int = 1) -> int:
        def inner() -> int:
            return twice(number) + offset + extra + int(os.getpid() == parent)

        return inner()

    parent = os.getpid()
    assert run_async(call(killable(compute), {"number": 4})).text == "19"


def test_a_local_function_sees_what_its_closure_holds_now() -> None:
    async def main() -> None:
        assert (await call(each)).text == "1"
        counter["value"] = 2
        assert (await call(each)).text == "2"

    counter = {"value": 1}

    def read() -> int:
        return counter["value"]

    each = killable(read)
    run_async(main())


def test_a_function_that_calls_itself_goes_by_value() -> None:
    def factorial(number: int) -> int:
        return 1 if number < 2 else number * factorial(number - 1)

    assert run_async(call(killable(factorial), {"number": 5})).text == "120"


def test_what_cannot_travel_is_refused_at_once() -> None:
    lock = threading.Lock()

    @tool(on_stop="kill")
    def guarded() -> str:
        with lock:
            return "x"

    with pytest.raises(InvalidTool, match=r"'lock', which .*guarded uses, cannot be sent"):
        Agent(ScriptedModel("x"), tools=[guarded])


def test_methods_travel_with_their_object() -> None:
    assert run_async(call(killable(Greeter("hi").greet))).text == "hi"


class Greeter:
    def __init__(self, word: str) -> None:
        self.word = word

    def greet(self) -> str:
        return self.word


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_memory": 1}, "need a process"),
        ({"max_cpu": 1.0}, "need a process"),
        ({"on_stop": "kill", "max_memory": 0}, "max_memory=0"),
        ({"on_stop": "kill", "timeout": -1}, "timeout=-1"),
    ],
)
def test_policies_that_cannot_work_are_refused(options, words) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Tool(hazards.speak, **options)


def test_windows_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(ConfigurationError, match="does not work on Windows"):
        Tool(hazards.speak, on_stop="kill")
