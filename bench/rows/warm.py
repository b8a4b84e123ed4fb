"""The rows whose clients stay: they are started once for each way to the server, and do rounds in turns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from .._server import chunk_size
from .figures import Figures, failures_are_noted
from .process import ClientFailed, Process, Subject
from .wires import Ways

READING: Final = "reading"


class Task(NamedTuple):
    """What a client does in one round, and how many units of it there are."""

    do: str
    parameters: Mapping[str, Any]
    units: int = 1
    words: int | None = None


def turns(number: int) -> Task:
    """A run with so many turns, the last one without a tool call."""
    return Task("run", {"kind": f"turns-{number}", "turns": number}, number, 1)


def chunks(number: int, per_read: int = 0) -> Task:
    """An answer of so many chunks. With `per_read`, a read of the socket gives so many; else, as they come."""
    kind = f"chunks-{number}-{per_read}" if per_read else f"chunks-{number}"
    return Task("run", {"kind": kind, "read_size": per_read * chunk_size()}, number, number)


def stop(kind: str) -> Task:
    """A stop in the state that `kind` names."""
    return Task("stop", {"kind": kind})


@contextlib.contextmanager
def processes(subjects: Sequence[Subject], ways: Ways, name: str) -> Iterator[list[Process]]:
    """A process for each client, all on one way."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(Process(each, ways.way(name)))) for each in subjects]


def once(process: Process, task: Task) -> dict[str, Any]:
    """One round of one client, per unit. Raises `ClientFailed`, also for an answer that is not whole."""
    found = process.do(task.do, **task.parameters)
    if task.words is not None and found["words"] != task.words and process.name != READING:
        raise ClientFailed(f"{found['words']} words of {task.words}")
    return {name: found[name] / task.units for name in ("cpu", "wall")}


def measure(clients: Sequence[Process], task: Task, rounds: int, warm_up: Task | None = None) -> Figures:
    """Rounds that alternate between the clients. One before them, or `warm_up`, does not count."""
    figures = Figures()
    for number in range(rounds + 1):
        if figures.took_long:
            break
        for process in figures.able(clients):
            with failures_are_noted(figures, process.name):
                if number:
                    figures.add(process.name, once(process, task))
                else:
                    once(process, warm_up or task)
    return figures
