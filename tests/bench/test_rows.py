"""What `python -m bench.rows` writes into docs/performance.md, and one round of one row with a real client."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import pytest
from bench._openai import HEAD, unchunked
from bench._server import answer_to, chunk_size, running_server
from bench.rows import environments, page, plan, process, programs, warm
from bench.rows.clients._base import Wire
from bench.rows.figures import Figures
from bench.rows.process import ClientFailed, Process, Subject
from bench.rows.profiled import package_of
from bench.rows.wires import Way

pytestmark = pytest.mark.house


class FakeClient:
    """A client that takes as long as it is told."""

    def __init__(self, name: str, *seconds: float, error: str = "") -> None:
        self.name = name
        self._seconds = list(seconds)
        self._error = error

    def do(self, what: str, **parameters: Any) -> dict[str, Any]:
        assert (what, parameters) == ("run", {"kind": "turns-2", "turns": 2})
        if self._error:
            raise ClientFailed(self._error)
        seconds = self._seconds.pop(0)
        return {"cpu": seconds, "wall": seconds * 2, "words": 1}


def measured() -> plan.Measured:
    clients: list[Any] = [
        FakeClient(plan.LINES, 9.0, 0.2, 0.4),
        FakeClient(plan.NOW, 9.0, 0.4, 0.4),
        FakeClient(plan.AGNO, error="no such model"),
        FakeClient(plan.STRANDS, 9.0, 2.0, 3.0),
    ]
    row = plan.Row("a turn", warm.turns(2), 2, (plan.AGNO, plan.STRANDS), wanted={"cpu": "1.5 of lines"})
    return plan.Measured(row, warm.measure(clients, row.task, row.rounds))


def test_rounds_alternate_and_the_first_one_does_not_count() -> None:
    figures = measured().figures
    assert figures.of(plan.LINES, "cpu") == [0.1, 0.2]  # per turn
    assert figures.ratio(plan.NOW, plan.LINES, "cpu") == pytest.approx(1.5)
    assert figures.failed == {plan.AGNO: "no such model"}


def test_the_table_has_the_best_other_and_says_what_could_not_be_measured() -> None:
    names = [plan.LINES, plan.FLOOR, plan.NOW]
    text = page.report([measured()], names, "profiles", 0.0)
    cells = ["a turn, ms", "100 (150)", "", "200 (200)", "1,000 (1,250) Strands", "", "1.50", "", "1.5 of lines"]
    assert f"| {' | '.join(cells)} |" in text
    assert "- a turn, Agno: no such model" in text


def test_an_answer_that_is_not_whole_is_a_failure() -> None:
    client: Any = FakeClient("short", 1.0)
    with pytest.raises(ClientFailed, match="1 words of 3"):
        warm.once(client, warm.turns(2)._replace(words=3))


def test_the_page_has_a_place_for_the_tables() -> None:
    filled = page.filled(page.PAGE.read_text(), "one\ntwo")
    assert filled.count(f"{page.BEGIN}\none\ntwo\n\n{page.END}") == 1
    assert page.filled(filled, "one\ntwo") == filled
    with pytest.raises(ValueError, match="has no place"):
        page.filled("# A page\n", "one")


def test_each_client_of_a_row_has_its_programs_and_its_environment() -> None:
    modules = {"lines", "floor", "quiesce", *plan.OTHERS.values()}
    assert modules <= set(programs.READY) & set(programs.IMPORTS)
    assert set(plan.OTHERS.values()) <= set(environments.PACKAGES)
    rows = [*plan.FULL.rows(), *plan.FULL.fresh_rows()]
    assert all(len(row.others) == 2 and set(row.others) <= set(plan.OTHERS) for row in rows)
    assert {row.way for row in rows} == {"plain", *plan.WAYS}


@pytest.mark.parametrize("per_read", [1, 16])
def test_reads_end_where_chunks_end(per_read: int) -> None:
    answer = answer_to(f"chunks-32-{per_read}", b"")
    assert answer.startswith(HEAD[:-2])
    head = answer.index(b"\r\n\r\n") + 4
    assert head % (per_read * chunk_size()) == 0
    assert len({len(each) for each in unchunked(answer)[:32]}) == 1


def test_files_belong_to_packages() -> None:
    assert package_of("/x/site-packages/httpcore2/_async/http11.py") == "httpcore2"
    assert package_of("/x/src/quiesce/models/wire/sse.py") == "quiesce: request and decoding"
    assert package_of("/x/src/quiesce/run/loop.py") == "quiesce: the run"
    assert package_of("/x/lib/python3.11/contextlib.py") == "the standard library"


def test_a_client_in_a_process_of_its_own_takes_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "environment", lambda _: sys.executable)
    with running_server() as url:
        way = Way(Wire(url), {})
        with contextlib.closing(Process(Subject(plan.FLOOR, "floor", "bare"), way)) as client:
            figures: Figures = warm.measure([client], warm.turns(2), 1)
    assert figures.failed == {}
    assert min(figures.of(plan.FLOOR, "cpu")) > 0
