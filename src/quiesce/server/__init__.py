"""Agents over HTTP: start, watch, stop and steer runs from a browser, a terminal, or another program.

Needs the extra `serve`: `pip install "quiesce[serve]"`.
"""

from .._lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, globals())  # pyright: ignore[reportUnsupportedDunderAll]
