"""kill -9 at every named point and at random moments: the session loads, is valid, keeps what was said, and goes on."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores.sqlite import SQLiteStore

from .conftest import Postgres
from .executioner import Executioner
from .victim import POINTS

pytestmark = pytest.mark.promise("P4", "P9")


@pytest.fixture(params=["sqlite", "postgres"])
def executioner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Executioner]:
    if request.param == "sqlite":
        where = str(tmp_path / "sessions.db")
        store: SessionStore = SQLiteStore(where)
    else:
        from quiesce.sessions.stores.postgres import PostgresStore

        server: Postgres = request.getfixturevalue("postgres")
        where = server.new_database()
        store = PostgresStore(where)
    made = Executioner(where, store, tmp_path)
    yield made
    made.close()


def _at_points(executioner: Executioner, most: int) -> None:
    """Each point at each of the first times that it is passed, until the victim outlives it."""
    for point in POINTS:
        for count in range(1, most + 1):
            # Two crashes in one session: the second victim has the first one's remains to recover.
            session = f"{point} {count}".replace(":", " ")
            killed = executioner.kill(session, point=point, count=count)
            executioner.kill(session, point=point, count=count)
            assert killed or count > 1, f"{point} was never passed"
            if not killed:
                break


def test_at_every_named_point(executioner: Executioner) -> None:
    _at_points(executioner, 1)


@pytest.mark.proof
def test_at_every_named_point_each_time(executioner: Executioner) -> None:
    _at_points(executioner, 1000)


def _at_random(executioner: Executioner, kills: int, seed: int) -> None:
    dice = random.Random(seed)
    killed = 0
    for number in itertools.count():
        session = f"random {number // 10}"
        killed += executioner.kill(session, prompts=2, after=dice.uniform(0.0, dice.choice([0.02, 0.1, 0.3])))
        if killed >= kills:
            break
        assert number < 4 * kills, "the victims are too fast to be killed"


def test_at_random_moments(executioner: Executioner) -> None:
    _at_random(executioner, 10, seed=1)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(10))
def test_at_many_random_moments(executioner: Executioner, seed: int) -> None:
    _at_random(executioner, 200, seed=100 + seed)
