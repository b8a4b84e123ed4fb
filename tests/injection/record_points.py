"""Writes down how many points each workload has: `python -m tests.injection.record_points`."""

from __future__ import annotations

import json
from pathlib import Path

from quiesce.testing import stop_everywhere

from .workloads import WORKLOADS

if __name__ == "__main__":
    points = {
        name: stop_everywhere(workload, sources=["loop", "hook"], stride=10**9, name=name).points
        for name, workload in WORKLOADS.items()
    }
    (Path(__file__).parent / "points.json").write_text(json.dumps(points, indent=2) + "\n")
    print(
        sum(count["step"] for count in points.values()),
        "steps,",
        sum(count["hook"] for count in points.values()),
        "hooks",
    )
