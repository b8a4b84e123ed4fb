"""Two owners, every route and every kind of state, at random: nothing crosses, and nothing of either is lost."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .two_owners import World

pytestmark = pytest.mark.promise("P8", "P6")


def test_nothing_crosses_in_some_operations(tmp_path: Path):
    world = World(tmp_path)
    world.play(100, restart_after=50)
    assert sum(world.done.values()) == 100


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_nothing_crosses_in_ten_thousand_operations(tmp_path: Path):
    world = World(tmp_path)
    world.play(10_000, restart_after=1_000)
    assert sum(world.done.values()) == 10_000
    ids = {name: len(owner.ids) for name, owner in world.owners.items()}
    print(world.done, world.restarts, ids, world.calls, file=sys.stderr)
