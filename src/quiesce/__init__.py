"""Quiesce: an agent SDK whose runs can be stopped at any instant, from anywhere, and what is left is true."""

from ._lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, globals())
