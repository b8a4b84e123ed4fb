"""Hosts where no run can be started: one sentence, before anything starts."""

import asyncio
import sys
from types import ModuleType

import pytest
import sniffio

from quiesce import Agent
from quiesce.errors import ConfigurationError
from quiesce.models.scripted import ScriptedModel

pytestmark = pytest.mark.feature


def assert_refused(match: str) -> None:
    model = ScriptedModel("Hello.")
    agent = Agent(model)
    for way in (agent, agent.start, lambda prompt: agent.invoke_async(prompt).send(None)):
        with pytest.raises(ConfigurationError, match=match):
            way("hi")
    assert agent.messages == ()
    assert not model.requests


def test_under_trio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sniffio.thread_local, "name", "trio")  # what trio does in a thread in which it runs
    assert_refused("runs under trio")


@pytest.mark.leaves("threads")  # trio keeps its worker threads for a while
def test_under_real_trio() -> None:
    trio = pytest.importorskip("trio")

    async def main() -> None:
        assert_refused("runs under trio")
        result = await trio.to_thread.run_sync(Agent(ScriptedModel("Hello.")), "hi")
        assert result.text == "Hello."

    trio.run(main)


@pytest.mark.parametrize("patched", [True, False])
def test_with_threads_that_gevent_replaced(monkeypatch: pytest.MonkeyPatch, patched: bool) -> None:
    monkey = ModuleType("gevent.monkey")
    monkey.is_module_patched = lambda name: patched and name == "threading"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gevent.monkey", monkey)
    if patched:
        assert_refused("gevent")
    else:
        assert asyncio.run(Agent(ScriptedModel("Hello.")).invoke_async("hi")).text == "Hello."
