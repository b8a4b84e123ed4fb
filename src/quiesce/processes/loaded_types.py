"""Asking what something is, without importing what it could be.

A worker process is forked by the tools that run in it, and what it has imported makes each of these forks slower, and
slower to end. So a worker imports little, and asks in this way.
"""

from __future__ import annotations

import sys


def is_a(value: object, module: str, name: str) -> bool:
    """`isinstance(value, module.name)`. Where the module was never imported, nothing is an instance of its classes."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))
