"""The step of CI that compares the cost of a chunk, of a turn and of a stop over HTTP with that of bare code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import ratios

pytestmark = pytest.mark.house

KNOWN = {"a chunk": 1.2, "a turn": 1.5}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "ratios.json"
    path.write_text(json.dumps(KNOWN))
    monkeypatch.setattr(ratios, "KNOWN", path)
    return path


def measure(monkeypatch: pytest.MonkeyPatch, *rounds: dict[str, float]) -> None:
    left = list(rounds)
    monkeypatch.setattr(ratios, "measured", lambda: left.pop(0))


@pytest.mark.usefixtures("known")
def test_a_ratio_that_is_worse_twice_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    measure(monkeypatch, KNOWN | {"a turn": 2.1}, KNOWN | {"a turn": 2.05})
    assert ratios.main() == 1
    assert [line.startswith("a turn") for line in capsys.readouterr().out.splitlines() if "WORSE" in line] == [True]


@pytest.mark.usefixtures("known")
def test_one_bad_minute_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    measure(monkeypatch, KNOWN | {"a turn": 9.0}, KNOWN)
    assert ratios.main() == 0


@pytest.mark.usefixtures("known")
def test_a_little_worse_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    measure(monkeypatch, {"a chunk": 1.5, "a turn": 1.9})
    assert ratios.main() == 0


def test_a_stop_over_http_may_take_twice_as_long_and_no_longer(known: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known.write_text(json.dumps({ratios.HTTP_STOP: 7.0}))
    measure(monkeypatch, {ratios.HTTP_STOP: 13.0})
    assert ratios.main() == 0
    measure(monkeypatch, {ratios.HTTP_STOP: 15.0}, {ratios.HTTP_STOP: 15.0})
    assert ratios.main() == 1


def test_ratios_are_written_down(monkeypatch: pytest.MonkeyPatch, known: Path) -> None:
    measure(monkeypatch, {"a chunk": 3.0, "a turn": 1.0})
    assert ratios.main(record=True) == 0
    assert json.loads(known.read_text()) == {"a chunk": 3.0, "a turn": 1.0}


def test_what_is_measured_is_what_is_known() -> None:
    turns = {f"a tool turn, in a run of {turns}" for turns in ratios.TURNS}
    assert set(json.loads(ratios.KNOWN.read_text())) == {"a chunk", *turns, ratios.HTTP_STOP}
