"""Asking for a stop, and being reached by it.

Some of the names need an event loop, and a tool's worker process does without most of them: each is imported when it is
first used.
"""

from .._lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, globals())
