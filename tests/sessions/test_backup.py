"""A copy of a store that is made while runs go on can be used in its place."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quiesce import Agent, Session
from quiesce.cli import main
from quiesce.conversation.validity import faults
from quiesce.events import TextDelta
from quiesce.models.scripted import Pause, Say, ScriptedModel
from quiesce.run.handle import Run
from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores.postgres import PostgresStore
from quiesce.sessions.stores.schema import SQLITE_MIGRATIONS
from quiesce.sessions.stores.sqlite import SQLiteStore

from .conftest import Postgres

pytestmark = pytest.mark.promise("P3", "P9")


class Writers:
    """Runs that write all the time, each into its own session, and what a reader of each has seen."""

    def __init__(self, store: SessionStore, count: int) -> None:
        self.store = store
        self.seen: dict[str, str] = {f"s{number}": "" for number in range(count)}
        self.ids: dict[str, str] = {}
        self.runs: list[Run] = []

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        readers = [asyncio.create_task(self._read(name)) for name in self.seen]
        while not all(self.seen.values()):
            await asyncio.sleep(0)
        try:
            yield
        finally:
            for run in self.runs:
                run.cancel("enough")
            await asyncio.gather(*readers)

    async def _read(self, name: str) -> None:
        words = [piece for number in range(5000) for piece in (Say(f"{name}-{number} "), Pause(0.001))]
        run = Agent(ScriptedModel(words), session=Session(name, self.store, lease=2)).start("Count.")
        self.runs.append(run)
        self.ids[name] = run.id
        async for event in run:
            if isinstance(event, TextDelta):
                self.seen[name] += event.text


def back_up(source: Path, target: Path) -> None:
    assert main(["sessions", "backup", str(target), "--store", str(source)]) == 0


async def check_copy(store: SessionStore, seen: dict[str, str], ids: dict[str, str], wait: float = 0.0) -> None:
    """The copy has everything that was seen before it was made, and its sessions go on."""
    for name, text in seen.items():
        session = Session(name, store, wait=wait)
        answer = await Agent(ScriptedModel("Here."), session=session).invoke_async("Still there?")
        assert answer.text == "Here."
        assert faults(session.messages) == ()
        assert session.messages[1].text.startswith(text), name
        events = await session.events(ids[name])
        assert "".join(each.event.text for each in events if isinstance(each.event, TextDelta)).startswith(text)
    await asyncio.wrap_future(store.close())


async def back_up_while_writing(folder: Path, *, runs: int, copies: int) -> int:
    """Make copies while runs go on; how many characters a reader has seen in the meantime."""
    source = SQLiteStore(folder / "s.db")
    writers = Writers(source, runs)
    seen_before: list[dict[str, str]] = []
    async with writers.writing():
        for number in range(copies):
            seen_before.append(dict(writers.seen))
            await asyncio.to_thread(back_up, source.path, folder / f"copy-{number}.db")
        moved_on = sum(map(len, writers.seen.values())) - sum(map(len, seen_before[0].values()))
    assert all(run.inspect().result.receipt.saved for run in writers.runs)  # none was held up, or lost anything
    await asyncio.wrap_future(source.close())
    for number, seen in enumerate(seen_before):
        await check_copy(SQLiteStore(folder / f"copy-{number}.db"), seen, writers.ids)
    return moved_on


def test_a_copy_that_is_made_while_runs_go_on_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(back_up_while_writing(tmp_path, runs=3, copies=2))
    copies = [path for path in tmp_path.iterdir() if path.name.startswith("copy")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in copies} == {0o600}
    assert capsys.readouterr().out.split() == [str(tmp_path / f"copy-{number}.db") for number in range(2)]


@pytest.mark.proof
def test_fifty_copies_of_a_busy_store_are_whole(tmp_path: Path) -> None:
    assert asyncio.run(back_up_while_writing(tmp_path, runs=20, copies=50)) > 0


@pytest.mark.proof
async def test_a_dump_of_postgres_is_whole(postgres: Postgres) -> None:
    url = postgres.new_database()
    source = PostgresStore(url)
    writers = Writers(source, 3)
    async with writers.writing():
        seen = dict(writers.seen)
        copy = await asyncio.to_thread(postgres.copy, url)
    await asyncio.wrap_future(source.close())
    await check_copy(PostgresStore(copy), seen, writers.ids, wait=10)  # until the copied leases have expired


def test_what_a_backup_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.db"
    assert main(["sessions", "backup", str(tmp_path / "copy.db"), "--store", str(path)]) == 1
    assert "There is no store" in capsys.readouterr().err
    Agent(ScriptedModel("Yes."), session="s", store=path)("Go.")
    back_up(path, tmp_path / "copy.db")
    assert main(["sessions", "backup", str(tmp_path / "copy.db"), "--store", str(path)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert main(["sessions", "backup", str(tmp_path / "no" / "copy.db"), "--store", str(path)]) == 1
    assert main(["sessions", "backup", str(tmp_path / "x.db"), "--store", "memory"]) == 1
    assert "pg_dump" in capsys.readouterr().err
    folder = tmp_path / "folder"
    folder.mkdir()
    back_up(path, folder)
    assert [file.suffix for file in folder.iterdir()] == [".db"]
    assert not list(tmp_path.glob("*partial*"))


def test_a_file_of_an_older_version_is_copied_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with sqlite3.connect(path) as db:
        for statement in SQLITE_MIGRATIONS[0]:
            db.execute(statement)
        db.execute("PRAGMA user_version = 1")
    db.close()
    back_up(path, tmp_path / "copy.db")
    with sqlite3.connect(tmp_path / "copy.db") as copy:
        assert copy.execute("PRAGMA user_version").fetchone() == (1,)
    copy.close()


def test_what_a_backup_that_was_killed_has_left_is_not_in_the_way(tmp_path: Path) -> None:
    """In a container each start has the same pid: the next backup said that its file exists already."""
    path = tmp_path / "s.db"
    Agent(ScriptedModel("Yes."), session="s", store=path)("Go.")
    (tmp_path / f"copy.db.partial-{os.getpid()}").touch()
    back_up(path, tmp_path / "copy.db")
