"""A call that was given up and ends after its run: what became of it is in the session, too."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from quiesce import Agent, Session, tool
from quiesce.cli import main as command
from quiesce.errors import StoreUnavailable
from quiesce.events import ToolStarted
from quiesce.messages import Outcome
from quiesce.receipt import Receipt
from quiesce.sessions.export import export_session, import_session
from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.sessions.stores.sqlite import SQLiteStore
from quiesce.testing import Call, ScriptedModel
from quiesce.tools.tool import Tool

from .conftest import StoreMaker

pytestmark = pytest.mark.promise("P4", "P9")


class Stubborn:
    """A tool in a thread that does not hear a stop, until it is let go."""

    def __init__(self) -> None:
        self._gate = threading.Event()

    def tool(self) -> Tool:
        @tool(on_stop="abandon", grace=0.01)
        def plough() -> str:
            """Plough on."""
            assert self._gate.wait(30)
            return "ploughed"

        return plough

    def let_go(self) -> None:
        self._gate.set()


async def give_up(agent: Agent) -> str:
    """A run that is stopped while its tool ploughs on; gives its id."""
    run = agent.start("Go")
    async for event in run:
        if isinstance(event, ToolStarted):
            run.cancel("enough")
    result = await run
    assert [call.outcome for call in result.receipt.calls] == [Outcome.ABANDONED]
    return run.id


async def late_receipt(store: SessionStore, run_id: str) -> Receipt:
    async with asyncio.timeout(20):
        while True:
            receipt = await Session("s", store).receipt(run_id)
            assert receipt is not None
            if receipt.late:
                return receipt
            await asyncio.sleep(0.01)


def test_a_late_outcome_is_in_the_stored_receipt(new_store: StoreMaker) -> None:
    async def main() -> None:
        store, stubborn = new_store(), Stubborn()
        model = ScriptedModel([Call("plough", id="c1")], then="Yes.")
        agent = Agent(model, tools=[stubborn.tool()], session=Session("s", store))
        run_id = await give_up(agent)
        told = await Session("s", store).events(run_id)
        before = (await asyncio.wrap_future(store.load("s"))).info
        # Somebody else goes on with the session: neither is in the other's way.
        other = await Agent(ScriptedModel("Go on."), session=Session("s", new_store())).invoke_async("And now?")
        stubborn.let_go()
        receipt = await late_receipt(new_store(), run_id)
        (late,) = receipt.late
        assert (late.call_id, late.name, late.ok, late.detail) == ("c1", "plough", True, "ploughed")
        assert "later     plough finished" in str(receipt)
        assert await Session("s", store).events(run_id) == told, "the end stays the last event"
        after = (await asyncio.wrap_future(store.load("s"))).info
        assert after.fence == before.fence + 1
        assert await Session("s", store).load() == other.messages
        lines = list(export_session(store, "s"))
        import_session(store, lines, name="copy")
        copy = await Session("copy", store).receipt(run_id)
        assert copy is not None
        assert copy.late == receipt.late

    asyncio.run(main())


def test_a_server_that_comes_back_shows_it(tmp_path: Path) -> None:
    from quiesce.server.stored_runs import StoredRuns

    async def main() -> None:
        store, stubborn = SQLiteStore(tmp_path / "s.db"), Stubborn()
        agent = Agent(ScriptedModel([Call("plough")]), tools=[stubborn.tool()], session="ann/s", store=store)
        run_id = await give_up(agent)
        stubborn.let_go()
        async with asyncio.timeout(20):
            while not (receipt := await Session("ann/s", store).receipt(run_id)) or not receipt.late:
                await asyncio.sleep(0.01)
        stored = StoredRuns(store, {"agent": agent})
        found = await stored.session("ann", "s")
        assert found is not None
        session, (record,) = found
        assert (await stored.run("ann", session, record)).receipt.late == receipt.late
        await asyncio.wrap_future(store.close())

    asyncio.run(main())


def test_it_is_said_once_and_of_a_session_that_is_there(store: SessionStore) -> None:
    async def main() -> None:
        agent = Agent(ScriptedModel("Yes."), session=Session("s", store))
        run = agent.start("Go")
        await run
        session_id = (await asyncio.wrap_future(store.load("s"))).info.id
        for _ in range(2):
            assert await asyncio.wrap_future(store.add_late(session_id, run.id, b'{"type":"turn_started","turn":1}'))
        rows = await asyncio.wrap_future(store.rows("s", run.id, marks=True))
        assert [row.payload for row in rows].count(b'{"type":"turn_started","turn":1}') == 1
        assert not await asyncio.wrap_future(store.add_late(session_id, "another", b"{}"))
        assert not await asyncio.wrap_future(store.add_late("another", run.id, b"{}"))

    asyncio.run(main())


@pytest.mark.parametrize("how", ["deleted", "away"])
def test_when_it_cannot_be_saved_it_is_logged(how: str, caplog: pytest.LogCaptureFixture) -> None:
    class Away(MemoryStore):
        def add_late(self, session_id: str, run_id: str, payload: bytes):
            if how == "away":
                return self._submit(self._fail)
            return super().add_late(session_id, run_id, payload)

        def _fail(self) -> bool:
            raise StoreUnavailable("The database is away.")

    async def main() -> None:
        store, stubborn = Away(), Stubborn()
        agent = Agent(ScriptedModel([Call("plough")]), tools=[stubborn.tool()], session=Session("s", store))
        await give_up(agent)
        if how == "deleted":
            await asyncio.wrap_future(store.delete("s"))
        stubborn.let_go()
        async with asyncio.timeout(20):
            while not caplog.records:
                await asyncio.sleep(0.01)

    with caplog.at_level(logging.WARNING, logger="quiesce"):
        asyncio.run(main())
    assert "ended late; not saved" in caplog.text
    assert ("gone" if how == "deleted" else "away") in caplog.text


def test_a_loop_that_has_closed_does_not_lose_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, stubborn = SQLiteStore(tmp_path / "s.db"), Stubborn()
    agent = Agent(ScriptedModel([Call("plough")]), tools=[stubborn.tool()], session=Session("s", store))
    run_id = asyncio.run(give_up(agent))
    stubborn.let_go()
    receipt = asyncio.run(late_receipt(store, run_id))
    assert receipt.late[0].detail == "ploughed"
    store.close().result()
    assert command(["sessions", "show", "s", "--store", str(tmp_path / "s.db")]) == 0
    assert "later     plough finished" in capsys.readouterr().out
