"""Counting tokens without the provider's help."""

from __future__ import annotations

from typing import Final

from .figure import UNKNOWN, Figure, Provenance

# Four bytes of UTF-8 to a token is the usual rule of thumb for prose and code.
_BYTES_PER_TOKEN: Final = 4


class ByteCounter:
    """Counts bytes and guesses tokens from them. Every vocabulary in use spends at least one byte on a token."""

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, text: str) -> None:
        """Count some more text."""
        # A stream may split a character in two: each half is a surrogate, which plain UTF-8 refuses.
        self._bytes += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

    @property
    def tokens(self) -> int:
        """The guess so far; at least 1 once there was any text."""
        return -(-self._bytes // _BYTES_PER_TOKEN)

    @property
    def figure(self) -> Figure:
        """The guess with its interval: open above, since a provider may bill what it never streamed."""
        if not self._bytes:
            return UNKNOWN
        return Figure(self.tokens, 1, None, Provenance.HEURISTIC)
