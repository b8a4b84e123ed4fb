"""Temporal as the engine of a fleet: a run is a workflow, its model calls and tool calls are activities.

Raises `MissingExtra` when it is imported without the package `temporalio`.
"""

from importlib.util import find_spec

from ..._lazy_names import lazy_names
from ...errors import MissingExtra

if find_spec("temporalio") is None:
    raise MissingExtra("quiesce.fleet.temporal", "temporalio", "temporal")

__getattr__, __dir__, __all__ = lazy_names(__name__, globals())  # pyright: ignore[reportUnsupportedDunderAll]
