"""Full disks, locks, lost connections, frozen processes, clocks that jump, nothing free: nothing is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from quiesce.sessions.stores.sqlite import SQLiteStore

from ..support.lengths import proof_length
from .adversary import against_postgres, against_sqlite, check
from .conftest import Postgres

pytestmark = [pytest.mark.promise("P3", "P9"), pytest.mark.proof, pytest.mark.timeout(7200)]

# Of the runs, one in ten is in Postgres, where they take longer; of the faults, half.
RUNS = int(proof_length("ADVERSARY_RUNS", 2_000, 10_000))
FAULTS = int(proof_length("ADVERSARY_FAULTS", 200, 1_000)) // 2
SEED = int(os.environ.get("QUIESCE_ADVERSARY_SEED", "1"))


def test_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    SQLiteStore(path).close().result()
    check(against_sqlite(path, seed=SEED, runs=RUNS * 9 // 10, faults=FAULTS), SQLiteStore(path))


def test_postgres() -> None:
    from quiesce.sessions.stores.postgres import PostgresStore

    server = Postgres()  # of its own, because it is restarted
    try:
        url = server.new_database()
        check(against_postgres(server, url, seed=SEED, runs=RUNS // 10, faults=FAULTS), PostgresStore(url))
    finally:
        server.close()
