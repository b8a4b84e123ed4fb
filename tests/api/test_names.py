"""What can be imported from `quiesce`: what an everyday program needs, and each only when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import quiesce
import quiesce.events
import quiesce.hooks

pytestmark = pytest.mark.feature

EVENTS = [
    "TextDelta",
    "ReasoningDelta",
    "RunStarted",
    "TurnStarted",
    "ToolStarted",
    "ToolProgress",
    "ToolEnded",
    "InterruptRaised",
    "MessageAdded",
    "StopRequested",
    "Steered",
    "ChildEvent",
    "EventsDropped",
    "RunEnded",
]


def test_the_common_events_the_hook_events_and_the_rest_come_from_the_package() -> None:
    for name in EVENTS:
        assert getattr(quiesce, name) is getattr(quiesce.events, name)
    hooks = [name for name, each in vars(quiesce.hooks).items() if _is_hook_event(each)]
    assert len(hooks) > 8
    for name in hooks:
        assert getattr(quiesce, name) is getattr(quiesce.hooks, name)
    assert quiesce.MCPServer.__module__.startswith("quiesce.mcp")
    assert issubclass(quiesce.RunError, quiesce.QuiesceError)


def _is_hook_event(each: object) -> bool:
    return isinstance(each, type) and issubclass(each, quiesce.HookEvent) and not each.__name__.startswith("_")


@pytest.mark.parametrize("name", ["TextDelta", "RunError", "ToolEnded"])
def test_a_name_does_not_import_the_agent(name: str) -> None:
    code = f"import sys; from quiesce import {name}; print('quiesce.agent' in sys.modules, 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
