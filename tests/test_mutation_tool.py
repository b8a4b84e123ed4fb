"""The mutation run knows its files and tests: a renamed one is noticed here, not an hour into `make proof`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.promise("P1")

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def mutation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutation", ROOT / "tools" / "mutation.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["mutation"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_has_mutants_and_every_named_test_exists(mutation: ModuleType) -> None:
    for pattern, tests in mutation.TESTS.items():
        assert list((ROOT / "src" / "quiesce").glob(pattern)), pattern
        for name in tests:
            path, _, test = name.partition("::")
            assert (ROOT / path).exists(), name
            assert test.partition("[")[0] in (ROOT / path).read_text(), name
    assert len(mutation.all_mutants("")) > 300
