"""Workers are killed and frozen, connections are cut, Postgres restarts, and stops come at random moments."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ..sessions.conftest import Postgres
from ..support.lengths import proof_length
from .chaos import FAULTS, Chaos, prompts, schedule
from .conftest import FleetUnderTest, with_fleet

pytestmark = pytest.mark.promise("P7", "P9")


KINDS = (*FAULTS, "notifications lost", "notifications doubled")


def programme(tmp_path: Path, **options: Any) -> int:
    """Run a programme and check what must hold after it. How many of the kinds of faults came."""
    postgres = Postgres(connections=200)  # of its own, because it is restarted
    done = Counter[str]()
    print(options)
    try:

        async def test(fleet: FleetUnderTest) -> None:
            chaos = Chaos(postgres, fleet, tmp_path / "witness", **options)
            await chaos.check(await chaos.run())
            done.update(chaos.done)

        with_fleet(postgres.new_database(), test)
    finally:
        postgres.close()
    print(dict(done))
    return sum(done[kind] > 0 for kind in KINDS)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.proof) for seed in (2, 3, 4, 5))])
def test_a_minute_of_faults(tmp_path: Path, seed: int) -> None:
    """Fewer workers and runs than in the ten minutes: another test shares the two processors with them."""
    came = programme(tmp_path, seed=seed, workers=4, runs=60, seconds=60.0, pause=0.4, lease=2.0)
    assert came >= len(KINDS) - 2  # on a busy machine too few workers may be up to end or freeze one


@pytest.mark.feature
def test_a_seed_gives_the_same_faults_and_prompts_again() -> None:
    assert (schedule(7, 60.0, 0.2), prompts(7, 50)) == (schedule(7, 60.0, 0.2), prompts(7, 50))
    assert schedule(7, 60.0, 0.2) != schedule(8, 60.0, 0.2)
    assert {fault.kind for fault in schedule(7, 60.0, 0.2)} == set(FAULTS)


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_many_minutes_of_faults(tmp_path: Path) -> None:
    """Ten of them in `make proof-long`."""
    seconds = proof_length("CHAOS_SECONDS", 240, 600)
    runs = round(seconds * 5 / 6)
    assert programme(tmp_path, seed=17, workers=8, runs=runs, seconds=seconds, pause=0.7, lease=4.0) == len(KINDS)
