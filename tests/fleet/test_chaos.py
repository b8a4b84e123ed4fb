"""Workers are killed and frozen, connections are cut, Postgres restarts, and stops come at random moments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..sessions.conftest import Postgres
from .chaos import Chaos
from .conftest import FleetUnderTest, with_fleet

pytestmark = pytest.mark.promise("P7", "P9")


def programme(tmp_path: Path, **options: Any) -> None:
    postgres = Postgres(connections=150)  # of its own, because it is restarted
    try:

        async def test(fleet: FleetUnderTest) -> None:
            chaos = Chaos(postgres, fleet, tmp_path / "witness", **options)
            await chaos.check(await chaos.run())
            print(dict(chaos.done))

        with_fleet(postgres.new_database(), test)
    finally:
        postgres.close()


def test_a_short_programme_of_faults(tmp_path: Path) -> None:
    programme(tmp_path, seed=1, workers=2, runs=8, seconds=2.0)


@pytest.mark.proof
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(2, 6))
def test_a_minute_of_faults(tmp_path: Path, seed: int) -> None:
    programme(tmp_path, seed=seed, workers=4, runs=150, seconds=60.0)
