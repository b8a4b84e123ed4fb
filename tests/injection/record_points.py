"""Writes down how many points each workload has: `python -m tests.injection.record_points`."""

from __future__ import annotations

import json
from pathlib import Path

from quiesce.testing import stop_everywhere

from .sources import READERS, read_by
from .workloads import WORKLOADS


def points(reader: str) -> dict[str, dict[str, int]]:
    """The points of each workload, when its models are read so."""
    with read_by(reader):
        return {
            name: stop_everywhere(workload, sources=["loop", "hook"], stride=10**9, name=name).points
            for name, workload in WORKLOADS.items()
        }


if __name__ == "__main__":
    recorded = {reader: points(reader) for reader in READERS}
    (Path(__file__).parent / "points.json").write_text(json.dumps(recorded, indent=2) + "\n")
    for reader, workloads in recorded.items():
        steps, hooks = (sum(count[kind] for count in workloads.values()) for kind in ("step", "hook"))
        print(f"read by the {reader}: {steps} steps, {hooks} hooks")
