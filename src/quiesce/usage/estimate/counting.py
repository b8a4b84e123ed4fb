"""Counting the tokens of a text that arrives in pieces."""

from __future__ import annotations

import re
from typing import Final

from .vocabulary import Vocabulary

# Four bytes of UTF-8 to a token is the usual rule of thumb for prose and code.
_BYTES_PER_TOKEN: Final = 4
# No vocabulary here has a token that spans a letter, a space and a letter, so what stands before such a place can be
# counted for good.
_SEAM: Final = re.compile(r"[A-Za-z] (?=[A-Za-z])")
# How much must have arrived since the last look before the uncommitted rest is counted again.
_STEP: Final = 64
# A rest that is longer, and would take long to count, is only estimated.
LONGEST_REST: Final = 50_000


class ByteCounter:
    """Counts bytes and guesses tokens from them: for models whose vocabulary is not known."""

    def __init__(self) -> None:
        self.bytes = 0

    def add(self, text: str) -> None:
        """Count some more text."""
        self.bytes += byte_length(text)

    @property
    def units(self) -> int:
        """The bytes."""
        return self.bytes

    @property
    def tokens(self) -> int:
        """The guess so far; at least 1 once there was any text."""
        return -(-self.bytes // _BYTES_PER_TOKEN)


class VocabularyCounter:
    """Counts in a model's own vocabulary: exactly as if the whole text were counted at once.

    Counting each piece by itself would count far too much, since pieces end inside words. So text is kept until a seam
    shows that no token can reach across it. A text without seams that would take too long to count is not counted:
    `is_exact` is False from then on.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary: Final = vocabulary
        self.is_exact = True
        self._committed = 0
        self._begun = False
        self._rest = ""
        self._arrived: list[str] = []
        self._waiting = 0
        self._rest_tokens = 0
        self._counted_to = 0
        self._searched_to = 0

    def add(self, text: str) -> None:
        """Take some more; counted once enough has come together."""
        self._arrived.append(text)
        self._waiting += len(text)
        # The step grows with the rest, so that a long text without any seam is not counted over and over.
        if self._waiting >= max(_STEP, len(self._rest) // 16):
            self._commit()

    def _commit(self) -> None:
        """Count for good what stands before the last seam."""
        self._rest += "".join(self._arrived)
        self._arrived.clear()
        self._waiting = 0
        if not self.is_exact or (len(self._rest) > LONGEST_REST and self._vocabulary.takes_long(self._rest)):
            self.is_exact = False
            self._committed += byte_length(self._rest) // _BYTES_PER_TOKEN
            self._rest, self._counted_to, self._searched_to = "", 0, 0
            return
        # A seam is three letters long: two of them may have been there at the last look.
        seam = _last_seam(self._rest, max(0, self._searched_to - 2))
        if seam:
            self._committed += self._count(self._rest[:seam])
            self._begun = True
            self._rest = self._rest[seam:]
            self._counted_to = 0
        self._searched_to = len(self._rest)

    def _count(self, text: str) -> int:
        return self._vocabulary.count_on(text) if self._begun else self._vocabulary.count(text)

    @property
    def tokens(self) -> int:
        """How many tokens the text has: exactly, as far as `is_exact` says so."""
        if self._arrived:
            self._commit()
        if self._counted_to != len(self._rest):
            self._rest_tokens = self._count(self._rest)
            self._counted_to = len(self._rest)
        return self._committed + (self._rest_tokens if self._rest else 0)

    @property
    def units(self) -> int | None:
        """The tokens; None when the text would take too long to count."""
        tokens = self.tokens
        return tokens if self.is_exact else None

    @property
    def roughly(self) -> int:
        """How many tokens, where the last few dozen letters are only guessed. Cheap after every piece."""
        uncounted = len(self._rest) - self._counted_to + self._waiting
        known = self._committed + (self._rest_tokens if self._counted_to else 0)
        return known + -(-uncounted // _BYTES_PER_TOKEN)


def _last_seam(text: str, since: int) -> int:
    """Where the last seam's space is, after a place before which there is none; 0 when there is none at all."""
    window = 256
    while True:
        start = max(since, len(text) - window)
        found = 0
        for match in _SEAM.finditer(text, start):
            found = match.start() + 1
        if found or start == since:
            return found
        window *= 8


def counter_in(vocabulary: Vocabulary | None) -> ByteCounter | VocabularyCounter:
    """A counter in a vocabulary, or in bytes without one."""
    return ByteCounter() if vocabulary is None else VocabularyCounter(vocabulary)


def byte_length(text: str) -> int:
    """The length in UTF-8. A stream may split a character in two, and each half is a surrogate, which that refuses."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
