"""How a tool's function gets into a worker process, and what cannot."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import oddities
import pytest
from tool_runs import call, killable, run_async

from quiesce import Agent, tool
from quiesce.errors import ConfigurationError, InvalidTool
from quiesce.models.scripted import ScriptedModel
from quiesce.tools.tool import Tool

pytestmark = pytest.mark.feature


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


LIMIT = 7


def test_the_body_of_a_class_in_a_function_finds_its_names() -> None:
    def make() -> int:
        class Made:
            limit = LIMIT

        return Made.limit

    assert run_async(call(killable(make))).text == "7"


def test_a_partial_goes_by_value() -> None:
    def weigh(number: int, factor: int, extra: int = 0) -> int:
        return number * factor + extra

    each = killable(functools.partial(weigh, factor=3, extra=1), name="weigh")
    assert run_async(call(each, {"number": 4})).text == "13"


def test_a_module_that_only_its_file_leads_to(tmp_path: Path) -> None:
    """As plugins are loaded, and tests by some runners."""
    place = tmp_path / "plugin_file.py"
    place.write_text(
        "import threading\nLOCK = threading.Lock()\ndef guarded() -> str:\n    with LOCK: return __name__\n"
    )
    spec = importlib.util.spec_from_file_location("quiesce_test_plugin", place)
    assert spec is not None
    assert spec.loader is not None
    plugin = sys.modules["quiesce_test_plugin"] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(plugin)

        guarded = plugin.guarded

        def through_the_module() -> str:
            return plugin.guarded()

        def through_the_function() -> str:
            return guarded()

        assert run_async(call(killable(plugin.guarded))).text == "quiesce_test_plugin"
        assert run_async(call(killable(through_the_module))).text == "quiesce_test_plugin"
        assert run_async(call(killable(through_the_function))).text == "quiesce_test_plugin"
    finally:
        del sys.modules["quiesce_test_plugin"]


def test_a_module_that_lacks_something_says_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lacks_something.py").write_text(
        f"import os\nif os.getpid() != {os.getpid()}: import quiesce_is_missing\ndef build() -> str: return 'built'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import lacks_something  # pyright: ignore[reportMissingImports]

    result = run_async(call(killable(lacks_something.build)))
    assert "Not run" in result.text
    assert "No module named 'quiesce_is_missing'" in result.text
    del sys.modules["lacks_something"]


def test_classes_and_functions_of_a_script_travel() -> None:
    """The script is run once: its workers do not import it."""
    script = Path(__file__).with_name("own_main.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "run as __main__",
        "Order of 4 to High Street, LARGE",
        "Refused: Order of 2",
        "3",
        "Order of 10",
    ]


def test_classes_of_a_module_that_nothing_can_import_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of documents and consoles that make a module of their own to run code in."""
    module = ModuleType("quiesce_test_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("class Page:\n    number = 3\n\ndef read() -> int:\n    return Page().number\n", module.__dict__)
    assert run_async(call(killable(module.read))).text == "3"


def test_a_class_inside_a_function_is_a_type_of_an_argument() -> None:
    @dataclasses.dataclass
    class Order:
        size: int

    def place(order: Order) -> int:
        assert type(order) is Order
        return order.size

    place.__annotations__["order"] = Order
    assert run_async(call(killable(place), {"order": {"size": 3}})).text == "3"


def test_a_type_that_cannot_travel_is_refused_at_once() -> None:
    @dataclasses.dataclass
    class Order:
        size: int
        lock = threading.Lock()

    def place(orders: list[Order] | None = None) -> str:
        return str(orders)

    place.__annotations__["orders"] = list[Order] | None
    with pytest.raises(InvalidTool, match=r"'orders' is a .*Order, which cannot be sent to another process .*lock"):
        Agent(ScriptedModel("x"), tools=[killable(place)])


@tool
def shout(words: str) -> str:
    return words.upper()


def test_a_tool_inside_a_function_travels_as_its_function() -> None:
    @tool
    def local(words: str) -> str:
        return f"{words}!" if words.isupper() else local(shout(words))

    def speak() -> str:
        return local("hello")

    assert run_async(call(killable(speak))).text == "HELLO!"


def test_what_cannot_travel_is_refused_at_once() -> None:
    lock = threading.Lock()

    @tool(on_stop="kill")
    def guarded() -> str:
        with lock:
            return "x"

    with pytest.raises(InvalidTool, match=r"'lock', which .*guarded uses, cannot be sent"):
        Agent(ScriptedModel("x"), tools=[guarded])


def test_what_a_function_further_down_cannot_take_along_is_named() -> None:
    lock = threading.Lock()

    def deep() -> str:
        def deeper() -> str:
            with lock:
                return middle()

        return deeper()

    def middle() -> str:
        return deep()

    for function in (middle, functools.partial(middle)):
        with pytest.raises(InvalidTool, match=r"'lock', which .*deep uses, cannot be sent.*create what it needs"):
            Agent(ScriptedModel("x"), tools=[killable(function, name="middle")])

    def guarded(guard: object) -> None: ...

    with pytest.raises(InvalidTool, match=r"'guard', which .*guarded.* uses, cannot be sent"):
        Agent(ScriptedModel("x"), tools=[killable(functools.partial(guarded, guard=lock), name="guarded")])


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
        Tool(oddities.speak, **options)


def test_windows_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(ConfigurationError, match="does not work on Windows"):
        Tool(oddities.speak, on_stop="kill")
