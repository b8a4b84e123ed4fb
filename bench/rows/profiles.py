"""Where the rest of a turn, of a chunk and of a stop goes, by package, and why it stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from . import warm
from .plan import FLOOR, NOW
from .process import ClientFailed, Process, Subject
from .warm import Task
from .wires import Ways

_ABOUT: Final = (
    "Where the time goes, by package, per turn, chunk or stop: from a profile (`cProfile`), scaled to the CPU time "
    "without it. What a package calls in C counts as its own; calls: of the bare client / of Quiesce."
)
Profile = dict[str, tuple[float, float]]  # by package: microseconds and calls of one unit
WHY: Final[Mapping[str, str]] = {
    "asyncio": "the event loop: a callback and a step of a task for each read; a stop also ends the tasks of the run",
    "anyio": "the socket, with a cancel scope and a time limit around each read and write",
    "httpcore2": "the pool of connections, and which request has which connection",
    "httpx2": "the request and the response: address, headers, time limits, hooks",
    "h11": "reads the head of an answer, and where each chunk of its body ends",
    "h2": "the frames of HTTP/2",
    "the standard library": "`contextlib`, `weakref`, `ssl` and the like, called by all of the others",
    "pydantic": "checks the arguments of a tool call",
    "bench": "the client's own code",
    "quiesce: request and decoding": "the request as bytes, each message encoded once; each event decoded once",
    "quiesce: the connection": "where a response and its chunks end (httptools), and whose connection it is",
    "quiesce: the tool call": "a task of its own for each call, with its policy for a stop and its outcome",
    "quiesce: the bill": "a ledger entry for each request, so that a stop at any instant can be charged",
    "quiesce: the conversation": "messages that are checked and valid after each step",
    "quiesce: events": "each event gets its number, and goes to each reader",
    "quiesce: the stop": "the token and the scopes that a stop reaches",
    "quiesce: the run": "the phases of the loop, and what a stop settles: the receipt, hooks, limits",
}
_TASKS: Final[Mapping[str, Callable[[int], Task]]] = {
    "a turn with a tool": warm.turns,
    "a chunk, one per read": lambda number: warm.chunks(number * 20, 1),
    "a stop of a stalled stream": lambda _: warm.stop("stall"),
    "a stop in an async tool": lambda _: warm.stop("sleep"),
}


def _profile(process: Process, task: Task, rounds: int) -> Profile:
    """Per unit. The profiler's own cost is taken out in proportion: the sum is what the client takes without it."""
    process.do(task.do, **task.parameters)
    cpu = min(warm.once(process, task)["cpu"] for _ in range(rounds))
    process.do("start_profile")
    for _ in range(rounds):
        process.do(task.do, **task.parameters)
    found: dict[str, Any] = process.do("end_profile")
    whole, units = sum(found["seconds"].values()), rounds * task.units
    return {
        package: (seconds / whole * cpu * 1e6, found["calls"][package] / units)
        for package, seconds in found["seconds"].items()
    }


def _table(title: str, floor: Profile, now: Profile) -> str:
    lines = [f"| {title} | {FLOOR}, us | {NOW}, us | calls | why it stays |", "|---|---|---|---|---|"]
    known = [each for each in WHY if each in floor or each in now]
    for package in [*known, *sorted((set(floor) | set(now)) - set(WHY))]:
        bare, mine = (each.get(package, (0.0, 0.0)) for each in (floor, now))
        calls = f"{bare[1]:,.1f} / {mine[1]:,.1f}"
        lines.append(f"| {package} | {bare[0]:,.1f} | {mine[0]:,.1f} | {calls} | {WHY.get(package, '')} |")
    sums = [sum(us for us, _ in each.values()) for each in (floor, now)]
    lines.append(f"| all | {sums[0]:,.1f} | {sums[1]:,.1f} | | |")
    return "\n".join(lines)


def profiles(subjects: Sequence[Subject], ways: Ways, size: int, progress: Callable[[str], None]) -> str:
    """A table for each of the tasks: the floor beside Quiesce."""
    found = [_ABOUT]
    both = [each for each in subjects if each.name in (FLOOR, NOW)]
    with warm.processes(both, ways, "plain") as (floor, now):
        for title, task in _TASKS.items():
            progress(f"a profile of {title}")
            try:
                asked, rounds = task(size), 20 if "stop" in title else 3
                found.append(_table(title, _profile(floor, asked, rounds), _profile(now, asked, rounds)))
            except ClientFailed as error:
                found.append(f"There is no profile of {title}: {error}")
    return "\n\n".join(found)
