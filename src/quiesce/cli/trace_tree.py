"""The trace of a run as a tree of lines: model calls, the tools that they asked for, the runs that tools started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from ..events import ChildEvent, InterruptRaised, ModelCallEnded, ModelCallStarted, RunEnded, ToolEnded, ToolStarted
from ..messages import Outcome, ToolResult
from ..usage.figure import Figure
from ..usage.ledger import LedgerEntry
from ..usage.prices import Cost
from .sanitize import call_line, clean, one_line

# So many equal calls in a row are one line.
_GROUP: Final = 3
_WIDEST: Final = 70
OUTCOMES: Final = {
    Outcome.COMPLETED: "",
    Outcome.NEVER_STARTED: "never started",
    Outcome.CANCELLED: "cancelled while running",
    Outcome.KILLED: "killed",
    Outcome.ABANDONED: "abandoned, may still be running",
    Outcome.UNKNOWN: "unknown",
}


@dataclass
class _Node:
    """A model call or a tool call. `tool` is the name of the tool; `inside` is the run that it started."""

    name: str
    began: float | None
    tool: str = ""
    ended: float | None = None
    words: str = "running"
    figures: str = ""
    children: list[_Node] = field(default_factory=list["_Node"])
    inside: TraceTree | None = None

    def end(self, at: float | None, words: str) -> None:
        """It has ended, as these words say."""
        self.ended, self.words = at, words

    @property
    def below(self) -> list[_Node]:
        """What it led to."""
        return self.children if self.inside is None else self.inside.nodes

    @property
    def line(self) -> str:
        """The node without what is below it."""
        seconds = None if self.began is None or self.ended is None else self.ended - self.began
        return "  ".join(filter(None, (self.name, _duration(seconds), self.figures, self.words)))


class TraceTree:
    """Built from the events of a run, in their order. The figures are those of the ledger."""

    def __init__(self) -> None:
        self.nodes: Final[list[_Node]] = []
        self._tools: Final[dict[str, _Node]] = {}
        self._calls: Final[dict[tuple[int, int], _Node]] = {}
        self._entries: Final[dict[str, _Node]] = {}
        self._total = ""

    def clear(self) -> None:
        """Begin again, with another run."""
        for each in (self.nodes, self._tools, self._calls, self._entries):
            each.clear()
        self._total = ""

    def add(self, event: Any, at: float | None) -> None:
        """Add what an event says, and when it happened, if that is known."""
        match event:
            case ModelCallStarted(turn, attempt, model):
                name = f"{clean(model)}, turn {turn}" + (f", attempt {attempt}" if attempt > 1 else "")
                self._calls[turn, attempt] = _Node(name, at)
                self.nodes.append(self._calls[turn, attempt])
            case ModelCallEnded(entry) if (entry.turn, entry.attempt) in self._calls:
                self._entries[entry.id] = self._calls[entry.turn, entry.attempt]
                self._entries[entry.id].end(at, _ending(entry))
                self._count(entry)
            case ToolStarted(call):
                self._begin(call.id, call_line(call.name, call.arguments, _WIDEST), call.name, at)
            case ToolEnded(result):
                node = self._tools.get(result.call_id) or self._begin(result.call_id, result.name, result.name, at)
                node.end(at, _outcome(result))
            case InterruptRaised(interrupt):
                node = self._tools.get(interrupt.call_id) or self._begin(
                    interrupt.call_id, call_line(interrupt.tool_name, interrupt.arguments, _WIDEST), "", at
                )
                node.words = "waits for you"
            case ChildEvent(call_id, _, inner) if call_id in self._tools:
                node = self._tools[call_id]
                node.inside = node.inside or TraceTree()
                node.inside.add(inner, at)
            case RunEnded(receipt=receipt):
                for entry in receipt.usage.entries:  # better figures may have come since; it has those of children too
                    self._count(entry)
                self._total = _figures(receipt.usage.input, receipt.usage.output, receipt.usage.cost)
            case _:
                pass

    def _begin(self, call_id: str, name: str, tool: str, at: float | None) -> _Node:
        """A tool call, below the model call that asked for it."""
        self._tools[call_id] = node = _Node(name, at, tool)
        (self.nodes[-1].children if self._calls else self.nodes).append(node)
        return node

    def _count(self, entry: LedgerEntry) -> None:
        node = self._entries.get(entry.id)
        if node is not None:
            node.figures = _figures(entry.usage.input, entry.usage.output, entry.cost)

    @property
    def lines(self) -> list[str]:
        """The tree, and the sum of the run once it has ended."""
        return [*_drawn(self.nodes, ""), *([f"in all  {self._total}"] if self._total else [])]


def _drawn(nodes: Sequence[_Node], indent: str) -> list[str]:
    lines: list[str] = []
    shown = _grouped(nodes)
    for number, node in enumerate(shown, 1):
        is_last = number == len(shown)
        lines.append(f"{indent}{'└─' if is_last else '├─'} {node.line}")
        lines += _drawn(node.below, f"{indent}{'  ' if is_last else '│ '} ")
    return lines


def _grouped(nodes: Sequence[_Node]) -> list[_Node]:
    """The nodes, with equal calls in a row as one."""
    found: list[_Node] = []
    for (tool, words, inside), run in groupby(nodes, lambda node: (node.tool, node.words, id(node.inside))):
        equal = list(run)
        if not tool or inside != id(None) or len(equal) < _GROUP:
            found += equal
            continue
        began = [each.began for each in equal if each.began is not None]
        ended = [each.ended for each in equal if each.ended is not None]
        name = f"{one_line(tool, _WIDEST)} x{len(equal)}"
        found.append(_Node(name, min(began, default=None), tool, max(ended, default=None), words))
    return found


def _ending(entry: LedgerEntry) -> str:
    if entry.ended == "failed":
        return f"failed: {clean(entry.error)}" if entry.error else "failed"
    return "" if entry.ended == "completed" else "cut"


def _outcome(result: ToolResult) -> str:
    if result.outcome is Outcome.COMPLETED and result.is_error:
        return f"failed: {one_line(result.text, _WIDEST)}"
    return OUTCOMES[result.outcome]


def _figures(input: Figure, output: Figure, cost: Cost | None) -> str:
    return ", ".join(filter(None, (f"{input.guess} in", f"{output.guess} out", "" if cost is None else cost.guess)))


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
