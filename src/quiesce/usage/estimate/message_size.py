"""The estimated tokens of each message, for choosing what fits into a request."""

from __future__ import annotations

from typing import Final, NamedTuple

from ...messages import Message
from .content import Kind, size_of
from .counting import byte_length
from .ratio import TokenRatio

# What providers add around each message and each call.
_PER_MESSAGE: Final = 4.0
_PER_CALL: Final = 10.0
# A longer text is not counted in a slow vocabulary: it would delay the request.
_SLOW_TEXT: Final = 4096


class _Counted(NamedTuple):
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
        self._ratio: Final = ratio
        self._known: Final[dict[int, _Counted]] = {}

    def __call__(self, message: Message) -> int:
        """About how many tokens a message is."""
        known = self._known.get(id(message))
        if known is None or known.message is not message:
            known = self._known[id(message)] = self._count(message)
        ratio = self._ratio
        total = (
            ratio.typical("message", _PER_MESSAGE) * known.messages + ratio.typical("call in", _PER_CALL) * known.calls
        )
        total += sum(ratio.tokens_in(kind, units) for kind, units in known.tokens.items())
        total += sum(ratio.tokens_in_bytes(kind, units) for kind, units in known.bytes.items())
        return max(1, round(total))

    def _count(self, message: Message) -> _Counted:
        size = size_of((message,))
        vocabulary = self._ratio.vocabulary
        tokens: dict[Kind, int] = {}
        lengths: dict[Kind, int] = {}
        for kind, text in (*size.pieces, *size.optional):
            if vocabulary is None or (vocabulary.slow and len(text) > _SLOW_TEXT):
                lengths[kind] = lengths.get(kind, 0) + byte_length(text)
            else:
                tokens[kind] = tokens.get(kind, 0) + vocabulary.count(text)
        return _Counted(message, tokens, lengths, size.messages, size.calls)
