"""Workloads with a store: stopped everywhere, and then the store must have what the agent shows."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

from quiesce import Agent, Tool
from quiesce.sessions.journal.rows import decode_messages
from quiesce.sessions.stores.sqlite import SQLiteStore
from quiesce.testing import Call, Harness, Say, ScriptedModel

from .registry import Workloads
from .tools import quick, slow

SHARED_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
WORKLOADS = Workloads()
workload = WORKLOADS.add
_folder = tempfile.TemporaryDirectory(prefix="quiesce-", dir=SHARED_MEMORY)
_store = SQLiteStore(Path(_folder.name) / "sessions.db")
_numbers = itertools.count()


def saved_agent(harness: Harness, model: ScriptedModel, tools: Sequence[Tool] = ()) -> Agent:
    """An agent with a session of its own. In the end, what the store has must be what the agent shows."""
    agent = Agent(model, tools=tools, session=f"work {next(_numbers)}", store=_store)

    def check() -> None:
        assert agent.session is not None
        snapshot = _store.load(agent.session.name).result()
        assert not snapshot.unfinished, "P9: a run that has ended is not marked so"
        assert snapshot.info.holder is None, "P9: the lease was not given back"
        assert decode_messages(snapshot.messages) == agent.messages, "P9: the store has another conversation"

    harness.on_close(check)
    harness.on_close(lambda: _store.close().result())
    return agent


@workload
async def session_with_tools(harness: Harness) -> None:
    calls = [Call("slow", {"seconds": 1}), Call("quick")]
    model = ScriptedModel([Say("Saved: ", pause=0.1), *calls], "It slept.", then="Yes.")
    await harness.invoke(saved_agent(harness, model, [quick, slow]), "Go")


@workload
async def session_that_is_read(harness: Harness) -> None:
    model = ScriptedModel(Say("Read when safe.", chunk=5, pause=0.1), then="Yes.")
    await harness.read(saved_agent(harness, model), "Tell")
