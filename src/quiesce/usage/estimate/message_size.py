"""The estimated tokens of each message, for choosing what fits into a request."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ...messages import Message
from ..figure import Provenance
from .content import Kind, size_of
from .counting import byte_length
from .ratio import BYTES_PER_TOKEN, TokenRatio

# What providers add around each message and each call.
_PER_MESSAGE: Final = 4.0
_PER_CALL: Final = 10.0


# A calibration that says more is wrong: one answer with reasoning that was billed and not shown can make it so.
_MOST_BESIDE: Final = 64.0
_FURTHEST: Final = 3.0
# The messages whose counts are kept.
_MOST_KNOWN: Final = 10_000


def _near(calibrated: float, uncalibrated: float) -> float:
    """The calibrated figure if it can be true, else the uncalibrated one: no text has three times the usual tokens."""
    return calibrated if uncalibrated / _FURTHEST <= calibrated <= uncalibrated * _FURTHEST else uncalibrated


class _Counted(Struct, frozen=True):
    """A message and its counts, which do not depend on the calibration."""

    message: Message
    tokens: dict[Kind, int]
    bytes: dict[Kind, int]
    messages: int
    calls: int


class MessageSizer:
    """Estimates the tokens of the messages of one conversation, without pictures and files. Each is read once.

    In the model's own vocabulary where there is one, corrected by the calibration; else by the calibrated ratio of
    bytes to tokens; else by rule of thumb.
    """

    def __init__(self, ratio: TokenRatio) -> None:
        self.ratio: Final = ratio
        self._known: Final[dict[int, _Counted]] = {}

    def __call__(self, message: Message) -> int:
        """About how many tokens a message is."""
        known = self._known.get(id(message))
        if known is None or known.message is not message:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[id(message)] = self._count(message)
        ratio = self.ratio
        beside = min(ratio.typical("message", _PER_MESSAGE), _MOST_BESIDE) * known.messages
        beside += min(ratio.typical("call in", _PER_CALL), _MOST_BESIDE) * known.calls
        counted = sum(_near(ratio.tokens_in(kind, units), units) for kind, units in known.tokens.items())
        guessed = sum(
            _near(ratio.tokens_in_bytes(kind, size), size / BYTES_PER_TOKEN[kind]) for kind, size in known.bytes.items()
        )
        return max(1, round(beside + counted + guessed))

    @property
    def source(self) -> Provenance:
        """What the sizes come from: the vocabulary, the calibration, or a rule of thumb."""
        return self.ratio.source_of(Kind.PROSE)

    def _count(self, message: Message) -> _Counted:
        size = size_of((message,))
        vocabulary = self.ratio.vocabulary
        tokens: dict[Kind, int] = {}
        lengths: dict[Kind, int] = {}
        for piece in (*size.pieces, *size.optional):
            kind, text = piece.kind, piece.text
            if vocabulary is None or vocabulary.takes_long(text):
                lengths[kind] = lengths.get(kind, 0) + byte_length(text)
            else:
                tokens[kind] = tokens.get(kind, 0) + vocabulary.count(text)
        return _Counted(message, tokens, lengths, size.messages, size.calls)
