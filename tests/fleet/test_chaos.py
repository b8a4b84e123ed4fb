"""Workers are killed and frozen, connections are cut, Postgres restarts, and stops come at random moments."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ..sessions.conftest import Postgres
from .chaos import FAULTS, Chaos, prompts, schedule
from .conftest import FleetUnderTest, with_fleet

pytestmark = pytest.mark.promise("P7", "P9")


def programme(tmp_path: Path, **options: Any) -> Counter[str]:
    """Run a programme, and check what must hold after it; gives how often each fault came."""
    postgres = Postgres(connections=200)  # of its own, because it is restarted
    done = Counter[str]()
    try:

        async def test(fleet: FleetUnderTest) -> None:
            chaos = Chaos(postgres, fleet, tmp_path / "witness", **options)
            await chaos.check(await chaos.run())
            done.update(chaos.done)

        with_fleet(postgres.new_database(), test)
    finally:
        postgres.close()
    print(dict(done))
    return done


def test_a_short_programme_of_faults(tmp_path: Path) -> None:
    programme(tmp_path, seed=1, workers=2, runs=8, seconds=2.0, pause=0.2, lease=1.5)


def test_a_seed_gives_the_same_faults_and_prompts_again() -> None:
    assert (schedule(7, 60.0, 0.2), prompts(7, 50)) == (schedule(7, 60.0, 0.2), prompts(7, 50))
    assert schedule(7, 60.0, 0.2) != schedule(8, 60.0, 0.2)
    assert {fault.kind for fault in schedule(7, 60.0, 0.2)} == set(FAULTS)


@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [2, 3])
def test_a_minute_of_faults(tmp_path: Path, seed: int) -> None:
    programme(tmp_path, seed=seed, workers=4, runs=100, seconds=60.0, pause=0.3, lease=2.0)


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_ten_minutes_of_faults(tmp_path: Path) -> None:
    done = programme(tmp_path, seed=17, workers=8, runs=500, seconds=600.0, pause=0.7, lease=4.0)
    assert all(done[kind] for kind in (*FAULTS, "notifications lost", "notifications doubled"))
