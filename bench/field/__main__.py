"""Run each framework through each scenario and print the table: `python -m bench.field [trials] [name ...]`."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import subprocess
import sys
import tempfile
from typing import Any

from .environments import ROOT, CouldNotInstall, environment
from .server import provider
from .table import SCENARIOS, table

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
}
TIME_LIMIT = 600  # seconds for one adapter in one scenario
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


def main(trials: int, names: list[str]) -> int:
    """Print the table. Returns 1 if something could not be run."""
    about: dict[str, dict[str, Any]] = {}
    found: dict[str, dict[str, list[dict[str, Any]] | str]] = {scenario: {} for scenario in SCENARIOS}
    load = os.getloadavg()[0]
    with provider() as server:
        for scenario in SCENARIOS:
            for name in (name for name in names if scenario in ADAPTERS[name][1]):
                print(f"{scenario}: {name}", file=sys.stderr, flush=True)
                try:
                    python = str(environment(ADAPTERS[name][0]))
                    about[name], *found[scenario][name] = run(python, name, server, scenario, trials)
                except (CouldNotInstall, CouldNotRun) as error:
                    found[scenario][name] = str(error)
    _print(about, found, trials, load)
    return int(any(isinstance(each, str) for rows in found.values() for each in rows.values()))


def _print(about: dict[str, Any], found: dict[str, Any], trials: int, load: float) -> None:
    today = dt.datetime.now(dt.UTC).date()
    print(f"{today}, {trials} trials each: medians, the worst in brackets")
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}, load {load:.1f} before and {os.getloadavg()[0]:.1f} after")
    print()
    width = max(map(len, about), default=0)
    for name, each in about.items():
        print(
            f"  {name:<{width}}  {', '.join(f'{package} {version}' for package, version in each['versions'].items())}"
        )
        print(f"  {'':<{width}}  stopped with {each['how']}")
    for scenario, (title, columns) in SCENARIOS.items():
        if found[scenario]:
            print()
            print(table(title, columns, found[scenario]))
    print()
    print("What the model is told of the tool that was stopped")
    for name, rows in found["tools"].items():
        if not isinstance(rows, str):
            for told in dict.fromkeys(each["told"] for each in rows):
                print(f"  {name:<{width}}  {told}")


if __name__ == "__main__":
    count, *only = sys.argv[1:] or ["10"]
    sys.exit(main(int(count), only or list(ADAPTERS)))
