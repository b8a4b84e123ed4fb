"""How long the programmes of `make proof` are, and how long those of `make proof-long`, which take most of a day."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("QUIESCE_LONG"))


def proof_length(name: str, usual: float, long: float) -> float:
    """What `QUIESCE_<name>` says, else the long length where `QUIESCE_LONG` is set, else the usual one."""
    return float(os.environ.get(f"QUIESCE_{name}") or (long if LONG else usual))
