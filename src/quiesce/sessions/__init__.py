"""Sessions: conversations that are saved in a store, and the stores."""

from .._lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, globals())
