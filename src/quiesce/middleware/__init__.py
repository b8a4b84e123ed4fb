"""Code around each model call and each tool call of a run: middleware, and the parts that come with it."""

from .._lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, globals())
