"""Each benchmark can be imported: what one takes from another is still there."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import bench

pytestmark = pytest.mark.house
NAMES = [each.name for each in pkgutil.iter_modules(bench.__path__) if each.name != "__main__"]


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_can_be_imported(name: str) -> None:
    try:
        importlib.import_module(f"bench.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("bench", "quiesce", "tests"):
            raise
        pytest.skip(f"{error.name} is not installed")
