"""What is public has types: where `Any` is left, there is a reason for it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from ..support.tool_scripts import load_script

pytestmark = pytest.mark.house


@pytest.fixture(scope="module")
def any_count() -> ModuleType:
    return load_script("any_count")


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
