"""A typed client for `quiesce serve`. Needs no extra."""

from .._lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, globals())  # pyright: ignore[reportUnsupportedDunderAll]
