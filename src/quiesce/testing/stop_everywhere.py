"""`stop_everywhere`: runs a scenario once for each point at which it can be stopped, and checks the promises."""

from __future__ import annotations

import inspect
import os
import random
from collections.abc import Callable, Iterable
from typing import Final, cast

from msgspec import Struct, field

from ..agent import Agent
from ..errors import ConfigurationError
from ..messages import Prompt
from .injector import FAULTS, POINTS, SOURCES, Injection
from .scenario import Harness
from .trial import Scenario, Trial, TrialResult

ALL_SOURCES: Final = (*SOURCES, "hook")
_KNOWN_SOURCES: Final = (*SOURCES, *FAULTS, *POINTS)
REPLAY: Final = "QUIESCE_REPLAY"


class StopViolation(AssertionError):
    """A promise was broken: the message says which one, after which stop, and how to repeat it.

    `injection` is that stop; None when the scenario breaks the promise without any.
    """

    def __init__(self, message: str, injection: Injection | None) -> None:
        super().__init__(message)
        self.injection: Final = injection


class StopReport(Struct):
    """The result of `stop_everywhere`: the number of points of each kind, and the number of stops that were made.

    `runs` is 0 only in a replay, of a stop of another test.
    """

    scenario: str
    points: dict[str, int] = field(default_factory=dict)
    runs: int = 0

    def __str__(self) -> str:
        points = ", ".join(f"{count} {kind}s" for kind, count in self.points.items())
        return f"{self.scenario}: {self.runs} stops over {points}; no promise was broken"


def stop_everywhere(
    scenario: Scenario | Callable[[], Agent],
    prompt: Prompt = "Go.",
    *,
    sources: Iterable[str] = ALL_SOURCES,
    follow_up: Prompt | None = "And then?",
    stride: int = 1,
    seed: int = 0,
    name: str | None = None,
    eager: bool = False,
    distinct: bool = False,
) -> StopReport:
    """Stop a scenario before every step of the loop, from every source, and check the promises P1 to P8 each time.

    `scenario` is either a function that makes a fresh agent, which is then given `prompt`, or an async function that is
    given a `Harness` and starts its runs with it. Afterwards the agent is given `follow_up` and must answer it; None
    leaves that out. Time is virtual; `random` is seeded. `stride=n` tries every n-th point only. `eager` lets tasks
    begin at once (`asyncio.eager_task_factory`, Python 3.12). `distinct` leaves out, for the sources that stop between
    lines, all but the first and the last time that a line of source is executed.

    Returns a `StopReport`. Raises `StopViolation`, with a one-line replay, at the first promise that is broken;
    `ConfigurationError` for a source that does not exist, and when not a single stop was made: such a test proves
    nothing. A replay makes one stop only, and none if it is of another test.
    """
    chosen = dict.fromkeys(sources)
    if unknown := [source for source in chosen if source not in _KNOWN_SOURCES]:
        raise ConfigurationError(
            f"There is no source of stops called {unknown[0]!r}.",
            todo=f"Choose from {', '.join(_KNOWN_SOURCES)}.",
        )
    title = name or getattr(scenario, "__name__", "scenario")
    sweep = _Sweep(_as_scenario(scenario, prompt), follow_up, seed, title, eager=eager)
    for source in chosen:
        sweep.stop_from(source, stride, distinct=distinct)
    if not sweep.report.runs and REPLAY not in os.environ:
        found = ", ".join(f"{count} {kind}s" for kind, count in sweep.report.points.items()) or "no sources"
        raise ConfigurationError(
            f"{title} was never stopped ({found}).",
            kept="No promise was checked.",
            todo="Start a run with the `Harness`, and choose sources that have points in it.",
        )
    return sweep.report


class _Sweep:
    """All the stops of one scenario, one trial each."""

    def __init__(self, scenario: Scenario, follow_up: Prompt | None, seed: int, name: str, *, eager: bool) -> None:
        self._scenario: Final = scenario
        self._follow_up: Final = follow_up
        self._seed: Final = seed
        self._eager: Final = eager
        self._only: Final = os.environ.get(REPLAY)
        self._unstopped: Final[dict[str, TrialResult]] = {}
        self.report: Final = StopReport(name)

    def stop_from(self, source: str, stride: int, *, distinct: bool) -> None:
        """Stop at every point there is for this source."""
        kind = POINTS.get(source, "step")
        if kind not in self._unstopped:
            self._unstopped[kind] = self._try(None, kind)
            self.report.points[kind] = self._unstopped[kind].points
        points = self._unstopped[kind].distinct if distinct and kind == "line" else []
        for point in (points or range(1, self.report.points[kind] + 1))[::stride]:
            injection = Injection(source, point)
            if self._only is None or self._only == str(injection):
                self.report.runs += self._try(injection, kind).stopped

    def _try(self, injection: Injection | None, kind: str) -> TrialResult:
        random.seed(self._seed)
        result = Trial(injection, kind, eager=self._eager).run(
            self._scenario, self._follow_up, self._unstopped.get(kind)
        )
        if result.faults:
            raise StopViolation(self._explain(injection, result), injection)
        return result

    def _explain(self, injection: Injection | None, result: TrialResult) -> str:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0]
        replay = f"{REPLAY}={injection}"
        again = f"{replay} python -m pytest '{test}'" if test else f"set {replay} and call this again"
        what = "\n  ".join(dict.fromkeys(result.faults))
        where = "without a stop" if injection is None else f"stopped at {injection}"
        where += f" ({result.place})" if result.place else ""
        return f"{self.report.scenario}, {where}, seed {self._seed}:\n  {what}\nTo see it again: {again}"


def _as_scenario(scenario: Scenario | Callable[[], Agent], prompt: Prompt) -> Scenario:
    if inspect.iscoroutinefunction(scenario):
        return scenario
    make_agent = cast("Callable[[], Agent]", scenario)

    async def invoke(harness: Harness) -> None:
        await harness.invoke(make_agent(), prompt)

    return invoke
