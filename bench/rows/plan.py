"""Which rows there are, and the measuring of all of them."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from .._server import TOGETHER_CHUNKS
from . import fresh, warm
from .figures import Figures
from .process import Subject
from .warm import Task
from .wires import Ways

LINES, FLOOR, NOW, BEFORE = "httpx lines, json", "httpx2 bytes, msgspec", "Quiesce", "Quiesce before"
# The best two of the other frameworks in each kind of row, as `docs/performance.md` says. Agno and Strands stop at
# checkpoints, which a stalled stream delays; Agno takes no HTTP client of httpx2, and so speaks no HTTP/2.
PYDANTIC_AI, OPENAI_AGENTS, STRANDS, AGNO = "Pydantic AI", "OpenAI Agents", "Strands", "Agno"
OTHERS: Final = {PYDANTIC_AI: "pydantic_ai", OPENAI_AGENTS: "openai_agents", STRANDS: "strands", AGNO: "agno"}
NO_VOCABULARY: Final = "without the vocabulary"
_NOTHING: Final = Task("", {})
STATES: Final = {"mid-stream": "flood", "stalled": "stall", "in an async tool": "sleep", "in a sub-agent": "child"}


@dataclasses.dataclass(frozen=True)
class Row:
    """One row: what it is called, what is wanted of it, and how often it is measured."""

    title: str
    task: Task
    rounds: int
    others: tuple[str, ...]
    way: str = "plain"
    wanted: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])  # by figure
    titles: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])  # by figure, where they differ
    warm_up: Task | None = None  # where a round of the row itself takes long
    reading: bool = False  # beside reading the bytes alone

    def has(self, name: str) -> bool:
        """Whether a client is measured in this row."""
        return self.reading if name == warm.READING else name not in OTHERS or name in self.others


@dataclasses.dataclass(frozen=True)
class Scale:
    """The numbers of a measurement."""

    turns: tuple[int, ...]
    chunks: int
    runs: int
    rounds: int
    long_rounds: int
    stops: int

    def rows(self) -> list[Row]:
        """The rows whose clients stay."""
        short, *_ = self.turns
        found = [
            Row(
                f"a turn with a tool, in a run of {each}",
                warm.turns(each),
                self.rounds if each == short else self.long_rounds,
                (AGNO, STRANDS) if each == short else (AGNO, PYDANTIC_AI),
                wanted={"cpu": "1.5 of lines"},
                warm_up=warm.turns(short),
            )
            for each in self.turns
        ]
        for per_read, wanted in ((1, "1.5 of reading"), (16, "2.5 of reading")):
            task = warm.chunks(self.chunks, per_read)
            found.append(
                Row(
                    f"a chunk, {per_read} per read",
                    task,
                    self.rounds,
                    (STRANDS, AGNO),
                    wanted={"cpu": wanted},
                    reading=True,
                )
            )
        stopping, elsewhere = (OPENAI_AGENTS, PYDANTIC_AI), (STRANDS, OPENAI_AGENTS)
        found += [
            Row(f"a stop {name}", warm.stop(kind), self.stops, stopping, wanted={"cpu": "1.3 of lines"})
            for name, kind in STATES.items()
        ]
        for way, title in WAYS.items():
            found.append(Row(f"a turn with a tool, {title}", warm.turns(short), self.rounds, elsewhere, way))
            found.append(Row(f"a chunk, {title}", warm.chunks(self.chunks), self.rounds, elsewhere, way, reading=True))
        return found

    def fresh_rows(self) -> tuple[Row, Row, Row]:
        """The rows whose clients are started anew in each round."""
        starting = (AGNO, PYDANTIC_AI)
        importing = Row(
            "import", _NOTHING, self.rounds, starting, titles={"memory": "memory after it"}, wanted={"wall": "0.12 s"}
        )
        titles = {
            "cpu": "a process with one prompt, from its start to its end",
            "wall": "process start to the first byte of the first request",
            "memory": "memory after the first answer",
        }
        wanted = {"wall": "0.3 s", "memory": "55 MB"}
        ready = Row(titles["wall"], _NOTHING, self.rounds, starting, wanted=wanted, titles=titles)
        at_once = Row(
            f"{self.runs} runs at once, {TOGETHER_CHUNKS} chunks each",
            _NOTHING,
            self.long_rounds,
            (STRANDS, AGNO),
            wanted={"cpu": "1.2 of lines", "memory": "40 KB"},
            titles={"memory": "memory of each of them"},
        )
        return importing, ready, at_once


WAYS: Final = {
    "proxy": "through a proxy",
    "TLS": "over TLS",
    "TLS through a proxy": "over TLS through a proxy",
    "HTTP/2": "over HTTP/2",
}
FULL: Final = Scale(turns=(20, 200), chunks=2_000, runs=500, rounds=5, long_rounds=3, stops=30)
QUICK: Final = Scale(turns=(5, 20), chunks=200, runs=20, rounds=1, long_rounds=1, stops=2)


@dataclasses.dataclass(frozen=True)
class Measured:
    """A row with its figures."""

    row: Row
    figures: Figures


class Progress:
    """Lines on stderr: what is being measured, and how long it has taken so far."""

    def __init__(self) -> None:
        self._began: Final = time.monotonic()

    def __call__(self, what: str) -> None:
        seconds = time.monotonic() - self._began
        print(f"{seconds:5.0f} s  load {os.getloadavg()[0]:4.1f}  {what}", file=sys.stderr, flush=True)


def measure(scale: Scale, subjects: Sequence[Subject], ways: Ways, progress: Callable[[str], None]) -> list[Measured]:
    """All rows, one after the other."""
    reading = Subject(warm.READING, "reading", "bare")
    found: list[Measured] = []
    rows = scale.rows()
    for way in dict.fromkeys(row.way for row in rows):
        here = [row for row in rows if row.way == way]
        needed = [each for each in (*subjects, reading) if any(row.has(each.name) for row in here)]
        with warm.processes(needed, ways, way) as clients:
            for row in here:
                progress(row.title)
                able = [each for each in clients if row.has(each.name)]
                found.append(Measured(row, warm.measure(able, row.task, row.rounds, row.warm_up)))
    return found + measure_fresh(scale, subjects, ways, progress)


def measure_fresh(
    scale: Scale, subjects: Sequence[Subject], ways: Ways, progress: Callable[[str], None]
) -> list[Measured]:
    """The rows whose clients are started anew in each round."""

    def taking(row: Row) -> list[Subject]:
        progress(row.title)
        return [each for each in subjects if row.has(each.name)]

    importing, ready, at_once = scale.fresh_rows()
    plain = [each._replace(name=NO_VOCABULARY, module="no_vocabulary") for each in subjects if each.name == NOW]
    return [
        Measured(importing, fresh.imports(taking(importing), importing.rounds)),
        Measured(ready, fresh.first_answers([*taking(ready), *plain], ready.rounds)),
        Measured(at_once, fresh.at_once(taking(at_once), ways, at_once.rounds, scale.runs)),
    ]
