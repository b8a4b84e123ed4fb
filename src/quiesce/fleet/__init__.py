"""Many machines: runs in a queue in Postgres, taken by workers, and watched and stopped from anywhere."""

from .._lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, globals())  # pyright: ignore[reportUnsupportedDunderAll]
