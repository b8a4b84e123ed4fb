"""What `make field` writes: the tables in the manual, the plots, and the stops at every point that they are about."""

from __future__ import annotations

import asyncio
import sys
from xml.etree import ElementTree as ET

import pytest
from bench.field import page, plots
from bench.field.__main__ import run
from bench.field.adapters._points import CountingLoop
from bench.field.server import provider
from bench.field.table import SCENARIOS, table

pytestmark = pytest.mark.house

POINTS = {
    "total": 40,
    "points": 40,
    "prompt_lost": 3,
    "text_lost": 2,
    "result_lost": 1,
    "refused": 4,
    "strict": 9,
    "hung": 2,
}


def test_the_page_has_a_place_for_the_figures() -> None:
    filled = page.filled(page.PAGE.read_text(), "one\ntwo")
    assert filled.count(f"```text\none\ntwo\n```\n{page.END}") == 1
    assert page.filled(filled, "one\ntwo") == filled
    with pytest.raises(ValueError, match="has no place"):
        page.filled("# A page\n", "one")


def test_points_are_shown_with_what_was_lost() -> None:
    text = table(*SCENARIOS["points"], {"one": [{**POINTS, "lost": 5}], "two": "no such package"})
    row = next(line for line in text.splitlines() if line.startswith("  one"))
    assert row.split() == ["one", "40", "of", "40", "2", "31", "3", "2", "1", "4", "9"]


def test_the_plots_have_a_bar_for_each_figure() -> None:
    drawn = ET.fromstring(plots.points({"one": [{**POINTS, "lost": 5}], "two": "no such package"}))
    widths = {each.get("class"): float(each.get("width", "0")) for each in drawn.iter() if each.tag.endswith("rect")}
    assert widths == {"kept": pytest.approx(440 * 31 / 40), "lost": pytest.approx(55), "refused": pytest.approx(44)}
    words = [each.text for each in drawn.iter() if each.tag.endswith("text")]
    assert "31 kept, 5 lost, 4 refused" in words
    assert "could not be run" in words
    costs = plots.cost({"one": [{"ratio": 2.0}], "two": [{"ratio": 4.0}]}, {"one": [{"ratio": 3.0}]})
    assert [each.get("width") for each in ET.fromstring(costs).iter() if each.tag.endswith("rect")] == [
        "220.0",
        "440.0",
        "440.0",
    ]


def test_the_loop_stops_before_the_callback_with_the_number() -> None:
    seen: list[str] = []

    async def run_it() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CountingLoop)
        loop.stop_at(2, lambda: seen.append("stop"))
        for name in ("first", "second", "third"):
            loop.call_soon(seen.append, name)
        loop.count = None
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(run_it())
    assert seen == ["first", "stop", "second", "third"]


@pytest.mark.promise("P2", "P3")
def test_a_stop_of_quiesce_at_any_point_loses_nothing() -> None:
    with provider() as server:
        _about, found = run(sys.executable, "quiesce", server, "points", 1)
    assert found["points"] >= 30
    assert {name: found[name] for name in ("refused", "strict", "lost", "result_lost", "text_lost")} == dict.fromkeys(
        ("refused", "strict", "lost", "result_lost", "text_lost"), 0
    )
