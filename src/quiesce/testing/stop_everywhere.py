"""`stop_everywhere`: play a scenario once for every point at which it could be stopped, and check every promise."""

from __future__ import annotations

import inspect
import os
import random
from collections.abc import Callable, Iterable
from typing import Final, cast

from msgspec import Struct, field

from ..agent import Agent
from ..messages import Prompt
from .injector import SOURCES, Shot
from .scenario import Stage
from .trial import Scenario, Take, Trial

ALL_SOURCES: Final = (*SOURCES, "hook")
REPLAY: Final = "QUIESCE_REPLAY"


class StopViolation(AssertionError):
    """A stop at some point broke a promise. The message says which, and how to see it again."""


class StopReport(Struct):
    """What `stop_everywhere` did: how many points there are for each kind of source, and how many stops were made."""

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
) -> StopReport:
    """Stop a scenario before every step it takes, from every source, and check the promises P1 to P8 each time.

    `scenario` is either a function that makes a fresh agent, which is then given `prompt`, or an async function that is
    given a `Stage` and starts its runs there. Afterwards the agent is given `follow_up` and must answer it; None leaves
    that out. Time is virtual; `random` is seeded. `stride=n` tries every n-th point only.

    Returns a `StopReport`. Raises `StopViolation`, with a one-line replay, at the first promise that is broken.
    """
    programme = _Programme(_as_scenario(scenario, prompt), follow_up, seed, name or _name(scenario))
    for source in dict.fromkeys(sources):
        programme.stop_from(source, stride)
    return programme.report


class _Programme:
    """All the stops of one scenario."""

    def __init__(self, play: Scenario, follow_up: Prompt | None, seed: int, name: str) -> None:
        self._play: Final = play
        self._follow_up: Final = follow_up
        self._seed: Final = seed
        self._only: Final = os.environ.get(REPLAY)
        self._unstopped: Final[dict[str, Take]] = {}
        self.report: Final = StopReport(name)

    def stop_from(self, source: str, stride: int) -> None:
        """Stop at every point there is for this source."""
        kind = source if source in ("hook", "line") else "step"
        if kind not in self._unstopped:
            self._unstopped[kind] = self._take(None, kind)
            self.report.points[kind] = self._unstopped[kind].points
        for point in range(1, self.report.points[kind] + 1, stride):
            shot = Shot(source, point)
            if self._only is None or self._only == str(shot):
                self._take(shot, kind)
                self.report.runs += 1

    def _take(self, shot: Shot | None, kind: str) -> Take:
        random.seed(self._seed)
        take = Trial(shot, kind).play(self._play, self._follow_up, self._unstopped.get(kind))
        if take.faults:
            raise StopViolation(self._explain(shot, take))
        return take

    def _explain(self, shot: Shot | None, take: Take) -> str:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0]
        again = f"{REPLAY}={shot} python -m pytest '{test}'" if test else f"set {REPLAY}={shot} and call this again"
        what = "\n  ".join(dict.fromkeys(take.faults))
        where = "without a stop" if shot is None else f"stopped at {shot}"
        return f"{self.report.scenario}, {where}, seed {self._seed}:\n  {what}\nTo see it again: {again}"


def _name(scenario: object) -> str:
    return getattr(scenario, "__name__", "scenario")


def _as_scenario(scenario: Scenario | Callable[[], Agent], prompt: Prompt) -> Scenario:
    if inspect.iscoroutinefunction(scenario):
        return scenario
    make_agent = cast("Callable[[], Agent]", scenario)

    async def invoke(stage: Stage) -> None:
        await stage.invoke(make_agent(), prompt)

    return invoke
