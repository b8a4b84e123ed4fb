"""What is public has types: where `Any` is left, there is a reason for it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.promise("P8")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def any_count() -> ModuleType:
    spec = importlib.util.spec_from_file_location("any_count", ROOT / "tools" / "any_count.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["any_count"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_public_name_with_any_in_its_types_has_a_reason(
    any_count: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert any_count.main() == 0, capsys.readouterr().out


def test_any_is_found_wherever_it_is(any_count: ModuleType) -> None:
    from quiesce import Tool, interrupts

    def plain(number: int) -> list[str]: ...
    def parameter(number: Any) -> None: ...
    def result() -> dict[str, Any]: ...
    def bare() -> Tool: ...
    def full() -> Tool[[int], str]: ...

    names = vars(interrupts) | {"Tool": Tool, "Any": Any}
    assert [any_count.has_any(each, names) for each in (plain, parameter, result, bare, full)] == [
        False,
        True,
        True,
        True,
        False,
    ]
