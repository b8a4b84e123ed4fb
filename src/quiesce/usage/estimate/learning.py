"""What one completed call, whose usage was reported, teaches the calibration."""

from __future__ import annotations

from typing import Final

from ..figure import Provenance
from .answer_count import AnswerCounter, Counted
from .calibration import PREAMBLE
from .content import Kind, weigh
from .figures import Anchor, ReceivedAnswer, SentRequest
from .framing import Sample
from .ratio import NOTHING, Span, TokenRatio

# A count this close to what was reported is the same count: ends of answers cost a token or two.
_SAME: Final = 4
_SAME_SHARE: Final = 0.02
# What surrounds a text can only be told from it when the text itself is known this well.
_CLEAR: Final = 12
# An answer longer than this teaches nothing that shorter ones do not, and counting it would be felt at its end.
_LONGEST_LESSON: Final = 65_536


def learn(scale: TokenRatio, sent: SentRequest, heard: ReceivedAnswer, anchor: Anchor | None) -> None:
    """Compare what was reported with what would have been estimated."""
    report = heard.report
    if report is None:
        return
    if report.final and heard.complete and report.output is not None and not _too_long(scale, heard):
        tally = heard.tally or AnswerCounter(scale.vocabulary)
        _learn_output(scale, tally.counted(heard.blocks), report.output, report.reasoning)
    if report.input is not None:
        _learn_input(scale, sent, anchor, report.input)


def _too_long(scale: TokenRatio, heard: ReceivedAnswer) -> bool:
    """Whether an answer would have to be counted now, and is too long for that. Bytes cost nothing to count."""
    if heard.tally is not None or scale.vocabulary is None:
        return False
    return sum(len(part) for block in heard.blocks for part in block.parts) > _LONGEST_LESSON


def _learn_output(scale: TokenRatio, counted: list[Counted], output: int, reasoning: int | None) -> None:
    words = [block for block in counted if block.kind is not Kind.REASONING and block.units]
    thought = [block for block in counted if block.kind is Kind.REASONING and block.units]
    visible = output - (reasoning or 0)
    if thought and reasoning is None:
        _learn_ratio(scale, Kind.REASONING, thought, output - _value(scale, words))
        return
    if reasoning is not None and (reasoning or thought):
        _learn_unseen(scale, thought, reasoning)
    if words and scale.vocabulary is not None:
        _remember(scale, scale.vocabulary.name, words, visible)
    calls = sum(block.is_call for block in words)
    kinds = {block.kind for block in words}
    if calls:
        _learn_calls(scale, words, calls, visible)
    elif len(kinds) == 1:
        _learn_ratio(scale, kinds.pop(), words, visible)


def _remember(scale: TokenRatio, vocabulary: str, words: list[Counted], tokens: int) -> None:
    units: dict[str, int] = {}
    for block in words:
        units[block.kind] = units.get(block.kind, 0) + block.units
    sample = Sample(units, sum(block.is_call for block in words), tokens)
    scale.calibration.remember(scale.model, vocabulary, sample)


def _learn_ratio(scale: TokenRatio, kind: Kind, blocks: list[Counted], tokens: float) -> None:
    units = sum(block.units for block in blocks)
    scale.calibration.learn_ratio(scale.model, scale.key(kind), units, round(tokens))


def _learn_unseen(scale: TokenRatio, thought: list[Counted], reasoning: int) -> None:
    seen = _value(scale, thought)
    if scale.vocabulary is not None and abs(reasoning - seen) <= max(_SAME, seen * _SAME_SHARE):
        seen = reasoning
    scale.calibration.learn_spread(scale.model, "unseen reasoning", reasoning - seen)


def _learn_calls(scale: TokenRatio, words: list[Counted], calls: int, tokens: int) -> None:
    span = _sum(scale, words)
    if span.source is Provenance.HEURISTIC:  # then what the calls add cannot be told from what the text costs
        written = [block for block in words if block.is_call]
        if len(written) == len(words):
            _learn_ratio(scale, Kind.JSON, words, tokens)
        return
    scale.calibration.learn_spread(scale.model, "call out", (tokens - span.value) / calls)


def _learn_input(scale: TokenRatio, sent: SentRequest, anchor: Anchor | None, tokens: int) -> None:
    if anchor is not None and anchor.fits(sent):
        _learn_message(scale, sent, anchor, tokens)
    elif anchor is None:
        _learn_preamble(scale, sent, tokens)


def _learn_message(scale: TokenRatio, sent: SentRequest, anchor: Anchor, tokens: int) -> None:
    """What messages cost beside their text."""
    weight = weigh(sent.messages[anchor.count :])
    if not weight.messages or weight.media or weight.optional or weight.calls:
        return
    text = NOTHING
    for kind, piece in weight.pieces:
        text = text.plus(scale.measure(kind, piece))
    if text.high is not None and text.high - text.low <= _CLEAR * weight.messages:
        beside = (tokens - anchor.input - text.value) / weight.messages
        scale.calibration.learn_spread(scale.model, "message", beside)


def _learn_preamble(scale: TokenRatio, sent: SentRequest, tokens: int) -> None:
    """What instructions and tools cost, from a conversation's first call."""
    weight = weigh(sent.messages)
    if weight.media or weight.optional or weight.calls or len(sent.messages) > 1:
        return
    text = NOTHING
    for kind, piece in weight.pieces:
        text = text.plus(scale.measure(kind, piece))
    if text.high is None or text.high - text.low > _CLEAR:
        return
    each = scale.spread("message", weight.messages, otherwise=(4.0, 0.0, 16.0))
    scale.calibration.learn_spread(scale.model, PREAMBLE + sent.preamble.fingerprint, tokens - text.value - each.value)


def _value(scale: TokenRatio, blocks: list[Counted]) -> float:
    return _sum(scale, blocks).value


def _sum(scale: TokenRatio, blocks: list[Counted]) -> Span:
    span = NOTHING
    for block in blocks:
        span = span.plus(scale.in_units(block.kind, block.units, block.text))
    return span
