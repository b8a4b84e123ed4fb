"""Run each framework through each scenario and print the table: `python -m bench.field [trials] [name ...]`.

With all of them, the table and the plots also go into the manual (`docs/field.md`, `docs/pictures`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

from . import page, plots
from .environments import ROOT, CouldNotInstall, environment
from .page import report
from .server import provider
from .table import SCENARIOS, TRIALS

# The adapters, each with the environment that it runs in and the scenarios that it has something to say about.
ADAPTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "quiesce": ("quiesce", tuple(SCENARIOS)),
    "quiesce_kill": ("quiesce", ("tools",)),
    "openai_agents": ("openai_agents", tuple(SCENARIOS)),
    "openai_agents_turn": ("openai_agents", ("tools",)),
    "pydantic_ai": ("pydantic_ai", tuple(SCENARIOS)),
    "langgraph": ("langgraph", tuple(SCENARIOS)),
    "strands": ("strands", tuple(SCENARIOS)),
    "agno": ("agno", tuple(SCENARIOS)),
    "agent_framework": ("agent_framework", tuple(SCENARIOS)),
    "autogen": ("autogen", tuple(SCENARIOS)),
    "google_adk": ("google_adk", tuple(SCENARIOS)),
    "google_adk_pool": ("google_adk", ("tools",)),
}
Rows = dict[str, list[dict[str, Any]] | str]  # of each adapter: its trials, or why there are none
TIME_LIMIT = 1200  # seconds for one adapter in one scenario
# Nothing leaves the machine, whatever is set outside.
SETTINGS = {"NO_PROXY": "127.0.0.1", "LANGSMITH_TRACING": "false"}


class CouldNotRun(Exception):
    """Why there are no figures."""


def run(python: str, adapter: str, server: str, scenario: str, trials: int) -> list[dict[str, Any]]:
    """What an adapter prints: first what it is, then one line for each trial."""
    command = [python, "-m", f"bench.field.adapters.{adapter}", server, scenario, str(trials)]
    with tempfile.TemporaryFile("w+") as errors:
        try:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                timeout=TIME_LIMIT,
                check=False,
                cwd=ROOT,
                env=os.environ | SETTINGS,
            )
        except subprocess.TimeoutExpired:
            raise CouldNotRun(f"not done after {TIME_LIMIT} s") from None
        errors.seek(0)
        said = errors.read().strip().splitlines()
    if done.returncode:
        raise CouldNotRun(said[-1] if said else f"exit code {done.returncode}")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if len(found) != trials + 1:
        raise CouldNotRun(f"{len(found) - 1} trials of {trials}")
    return found


class Found:
    """What was found so far, also on disk: a run of an hour that is interrupted goes on where it was."""

    def __init__(self, trials: int) -> None:
        self._path = ROOT / "build" / f"field-{trials}.json"
        self.trials = trials
        kept = json.loads(self._path.read_text()) if self._path.exists() else {}
        self.load: float = kept.get("load", os.getloadavg()[0])
        self.about: dict[str, dict[str, Any]] = kept.get("about", {})
        self.rows: dict[str, Rows] = {scenario: kept.get("rows", {}).get(scenario, {}) for scenario in SCENARIOS}

    def has(self, scenario: str, name: str) -> bool:
        """Whether there are figures. What could not be run is tried again."""
        return isinstance(self.rows[scenario].get(name), list)

    def add(self, scenario: str, name: str, rows: list[dict[str, Any]] | str) -> None:
        self.rows[scenario][name] = rows
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps({"load": self.load, "about": self.about, "rows": self.rows}))

    def for_names(self, names: list[str]) -> dict[str, Rows]:
        """The rows of these adapters, in their order."""
        return {scenario: {name: rows[name] for name in names if name in rows} for scenario, rows in self.rows.items()}

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)


def measure(found: Found, names: list[str]) -> None:
    """Everything that is not there yet."""
    with provider() as server:
        for scenario in SCENARIOS:
            for name in (name for name in names if scenario in ADAPTERS[name][1] and not found.has(scenario, name)):
                print(f"{scenario}: {name} ...", end=" ", file=sys.stderr, flush=True)
                began = time.monotonic()
                try:
                    python = str(environment(ADAPTERS[name][0]))
                    count = TRIALS.get(scenario, int)(found.trials)
                    found.about[name], *rows = run(python, name, server, scenario, count)
                    found.add(scenario, name, rows)
                except (CouldNotInstall, CouldNotRun) as error:
                    found.add(scenario, name, str(error))
                print(f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def main(trials: int, names: list[str]) -> int:
    """Run everything, print the table, and write it into the manual. Returns 1 if something could not be run."""
    found = Found(trials)
    measure(found, names)
    rows = found.for_names(names)
    text = report({name: found.about[name] for name in names if name in found.about}, rows, trials, found.load)
    print(text)
    failed = any(isinstance(each, str) for scenario in rows.values() for each in scenario.values())
    if names == list(ADAPTERS):
        page.write(text)
        plots.write(rows)
        if not failed:
            found.forget()
    return int(failed)


if __name__ == "__main__":
    count, *only = sys.argv[1:] or ["10"]
    sys.exit(main(int(count), only or list(ADAPTERS)))
