"""A process is killed in a call, and the next one right after it has recovered the session: the undo names the call."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from quiesce import Agent, Session, tool
from quiesce.receipt import Undone
from quiesce.testing import Call, ScriptedModel

from ..support.programs import fork_child

pytestmark = pytest.mark.promise("P4", "P9")


@tool
async def write(path: str) -> str:
    """Write a file, and end with the process before the result is known."""
    Path(path).write_text("new")
    os._exit(9)


@write.undo
async def unwrite(path: str) -> None:
    """Take it back."""


def agent(store: Path, *answers: Call) -> Agent:
    return Agent(ScriptedModel(*answers), tools=[write], session=Session("s", store))


def killed_in_a_call(job: tuple[Path, Path]) -> None:
    store, file = job
    asyncio.run(agent(store, Call("write", {"path": str(file)}, "c")).invoke_async("Go."))


async def recover_and_end(store: Path) -> None:
    """What a process does that is killed as soon as it has the session: the crash is sealed, and nothing follows."""
    session = Session("s", store)
    lease = await session.open(asyncio.get_running_loop().create_future())
    await asyncio.wrap_future(session.store.release(lease))
    await asyncio.wrap_future(session.store.close())


@pytest.mark.parametrize("killed_again", [False, True])
def test_the_undo_names_a_call_that_an_earlier_crash_has_cut(tmp_path: Path, killed_again: bool) -> None:
    store, file = tmp_path / "s.db", tmp_path / "file.txt"
    _, status = os.waitpid(fork_child(killed_in_a_call, (store, file)), 0)
    assert os.waitstatus_to_exitcode(status) == 9
    assert file.read_text() == "new"
    if killed_again:
        asyncio.run(recover_and_end(store))
    receipts = asyncio.run(agent(store).undo_async())
    assert [(each.call_id, each.outcome) for each in receipts] == [("c", Undone.NOT_UNDONE)]
