"""Where conversations live."""

from .._lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, globals())
