"""The same stops on uvloop: some points of a few workloads here, every point of all of them in `make proof`."""

from __future__ import annotations

import pytest

from quiesce.testing import stop_everywhere, trial

from .sources import DIFFERENT_SOURCES
from .workloads import WORKLOADS

uvloop = pytest.importorskip("uvloop")
pytestmark = pytest.mark.promise("P1", "P2")


@pytest.fixture(autouse=True)
def on_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    from .virtual_uvloop import VirtualUvloop

    monkeypatch.setattr(trial, "VirtualLoop", VirtualUvloop)


@pytest.mark.parametrize("name", ["one_tool", "session_with_tools"])
def test_some_points(name: str) -> None:
    print(stop_everywhere(WORKLOADS[name], sources=["loop", "thread", "task"], stride=17, name=name))


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_point(name: str) -> None:
    print(stop_everywhere(WORKLOADS[name], sources=DIFFERENT_SOURCES, name=name))
