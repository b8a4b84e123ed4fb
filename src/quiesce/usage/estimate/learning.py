"""Updates the calibration from a completed call whose usage was reported."""

from __future__ import annotations

from typing import Final

from ..figure import Provenance
from .answer_count import Counted, count_blocks
from .calibration import PREAMBLE
from .content import Kind, size_of
from .figures import Anchor, ReceivedAnswer, SentRequest
from .framing import Sample
from .ratio import Span, TokenRatio

# A count this close to the reported one is the same count: ends of answers cost a token or two.
_SAME: Final = 4
_SAME_SHARE: Final = 0.02
# The cost of what surrounds a text is known only when that of the text is known this well.
_CLEAR: Final = 12
# A longer answer adds nothing to the calibration, and counting it would delay the end of the run.
_LONGEST_SAMPLE: Final = 65_536


def learn(ratio: TokenRatio, sent: SentRequest, received: ReceivedAnswer, anchor: Anchor | None) -> None:
    """Compare what was reported with what would have been estimated."""
    report = received.report
    if report is None or report.server_tools:  # what those read and write is not seen here
        return
    if report.final and received.complete and report.output is not None and not _too_long(ratio, received):
        counter, blocks = received.counter, received.blocks
        counted = count_blocks(ratio.vocabulary, blocks) if counter is None else counter.counted(blocks)
        if all(block.units is not None for block in counted):
            _learn_output(ratio, counted, report.output, report.reasoning)
    if report.input is not None:
        _learn_input(ratio, sent, anchor, report.input)


def _too_long(ratio: TokenRatio, received: ReceivedAnswer) -> bool:
    """Whether an answer would have to be counted now, and is too long for that. Bytes cost nothing to count."""
    if received.counter is not None or ratio.vocabulary is None:
        return False
    return sum(len(block.parts.text()) for block in received.blocks) > _LONGEST_SAMPLE


def _learn_output(ratio: TokenRatio, counted: list[Counted], output: int, reasoning: int | None) -> None:
    words = [block for block in counted if block.kind is not Kind.REASONING and block.units]
    thought = [block for block in counted if block.kind is Kind.REASONING and block.units]
    visible = output - (reasoning or 0)
    if thought and reasoning is None:
        _learn_ratio(ratio, Kind.REASONING, thought, output - _sum(ratio, words).value)
        return
    if reasoning is not None and (reasoning or thought):
        _learn_unseen(ratio, thought, reasoning)
    if words and ratio.vocabulary is not None:
        _remember(ratio, ratio.vocabulary.name, words, visible)
    calls = sum(block.is_call for block in words)
    kinds = {block.kind for block in words}
    if calls:
        _learn_calls(ratio, words, calls, visible)
    elif len(kinds) == 1:
        _learn_ratio(ratio, kinds.pop(), words, visible)


def _remember(ratio: TokenRatio, vocabulary: str, words: list[Counted], tokens: int) -> None:
    units: dict[str, int] = {}
    for block in words:
        units[block.kind] = units.get(block.kind, 0) + (block.units or 0)
    sample = Sample(units, sum(block.is_call for block in words), tokens)
    ratio.calibration.remember(ratio.model, vocabulary, sample)


def _learn_ratio(ratio: TokenRatio, kind: Kind, blocks: list[Counted], tokens: float) -> None:
    units = sum(block.units or 0 for block in blocks)
    ratio.calibration.learn_ratio(ratio.model, ratio.key(kind), units, round(tokens))


def _learn_unseen(ratio: TokenRatio, thought: list[Counted], reasoning: int) -> None:
    seen = _sum(ratio, thought).value
    if ratio.vocabulary is not None and abs(reasoning - seen) <= max(_SAME, seen * _SAME_SHARE):
        seen = reasoning
    ratio.calibration.learn_spread(ratio.model, "unseen reasoning", reasoning - seen)


def _learn_calls(ratio: TokenRatio, words: list[Counted], calls: int, tokens: int) -> None:
    span = _sum(ratio, words)
    if span.source is Provenance.HEURISTIC:  # then the cost of the calls cannot be separated from that of the text
        written = [block for block in words if block.is_call]
        if len(written) == len(words):
            _learn_ratio(ratio, Kind.JSON, words, tokens)
        return
    ratio.calibration.learn_spread(ratio.model, "call out", (tokens - span.value) / calls)


def _learn_input(ratio: TokenRatio, sent: SentRequest, anchor: Anchor | None, tokens: int) -> None:
    if anchor is not None and anchor.fits(sent):
        _learn_message(ratio, sent, anchor, tokens)
    elif anchor is None:
        _learn_preamble(ratio, sent, tokens)


def _learn_message(ratio: TokenRatio, sent: SentRequest, anchor: Anchor, tokens: int) -> None:
    """What messages cost beside their text."""
    size = size_of(sent.messages[anchor.count :])
    if not size.messages or size.media or size.optional or size.calls:
        return
    text = ratio.total((kind, None, piece) for kind, piece in size.pieces)
    if text.high is not None and text.high - text.low <= _CLEAR * size.messages:
        beside = (tokens - anchor.input - text.value) / size.messages
        ratio.calibration.learn_spread(ratio.model, "message", beside)


def _learn_preamble(ratio: TokenRatio, sent: SentRequest, tokens: int) -> None:
    """What instructions and tools cost, from a conversation's first call."""
    size = size_of(sent.messages)
    if size.media or size.optional or size.calls or len(sent.messages) > 1:
        return
    text = ratio.total((kind, None, piece) for kind, piece in size.pieces)
    if text.high is None or text.high - text.low > _CLEAR:
        return
    each = ratio.spread("message", size.messages, otherwise=(4.0, 0.0, 16.0))
    ratio.calibration.learn_spread(ratio.model, PREAMBLE + sent.preamble.fingerprint, tokens - text.value - each.value)


def _sum(ratio: TokenRatio, blocks: list[Counted]) -> Span:
    return ratio.total((block.kind, block.units, block.text) for block in blocks)
