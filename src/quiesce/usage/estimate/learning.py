"""Updates the calibration from a completed call whose usage was reported."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ...messages import Message
from ..figure import Provenance
from .answer_count import AnswerCounter, Block, count_answer
from .calibration import PREAMBLE
from .content import Kind, TextPiece, size_of
from .figures import Anchor, SentRequest
from .framing import Sample
from .ratio import PER_MESSAGE, TokenRatio
from .received import ReceivedAnswer, ReportedUsage

# A count this close to the reported one is the same count: ends of answers cost a token or two.
_SAME: Final = 4
_SAME_SHARE: Final = 0.02
# The cost of what surrounds a text is known only when that of the text is known this well.
_CLEAR: Final = 12
# A longer answer adds nothing to the calibration, and counting it would delay the end of the run.
_LONGEST_SAMPLE: Final = 65_536


class LearningSample(Struct, frozen=True):
    """What a call with a report can teach. It is kept until the vocabulary is loaded in which the answer is counted.

    `messages` are those that were new in the request: since the call before, whose input was `known`, or all of a first
    request that has one message; empty where neither is so.
    """

    report: ReportedUsage
    blocks: tuple[Block, ...]
    counter: AnswerCounter | None
    complete: bool
    messages: tuple[Message, ...]
    known: int | None
    fingerprint: str

    @property
    def is_long(self) -> bool:
        """Whether the answer was not counted while it was streamed, and is too long to be counted for this."""
        return self.counter is None and sum(len(block.parts.text()) for block in self.blocks) > _LONGEST_SAMPLE


def sample_of(
    sent: SentRequest, received: ReceivedAnswer, report: ReportedUsage, anchor: Anchor | None
) -> LearningSample | None:
    """What a call with a report can teach; None where tools of the provider ran, which are not seen here."""
    if report.server_tools:
        return None
    messages: tuple[Message, ...] = ()
    known = None
    if anchor is not None and anchor.fits(sent):
        messages, known = sent.messages[anchor.count :], anchor.input
    elif anchor is None and len(sent.messages) == 1:
        messages = sent.messages
    complete = received.complete and report.final and report.output is not None
    blocks = received.blocks if complete else ()
    return LearningSample(report, blocks, received.counter, complete, messages, known, sent.preamble.fingerprint)


def learn(ratio: TokenRatio, sample: LearningSample) -> None:
    """Compare what was reported with what would have been estimated."""
    report = sample.report
    if sample.complete and report.output is not None and (ratio.vocabulary is None or not sample.is_long):
        counted = count_answer(ratio.vocabulary, sample.blocks, sample.counter)
        if all(block.units is not None for block in counted):
            _learn_output(ratio, counted, report.output, report.reasoning)
    if report.input is not None and sample.messages:
        if sample.known is not None:
            _learn_message(ratio, sample.messages, report.input - sample.known)
        else:
            _learn_preamble(ratio, sample.messages, sample.fingerprint, report.input)


def _learn_output(ratio: TokenRatio, counted: list[TextPiece], output: int, reasoning: int | None) -> None:
    words = [block for block in counted if block.kind is not Kind.REASONING and block.units]
    thought = [block for block in counted if block.kind is Kind.REASONING and block.units]
    visible = output - (reasoning or 0)
    if thought and reasoning is None:
        _learn_ratio(ratio, Kind.REASONING, thought, output - ratio.total(words).value)
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


def _remember(ratio: TokenRatio, vocabulary: str, words: list[TextPiece], tokens: int) -> None:
    units: dict[str, int] = {}
    for block in words:
        units[block.kind] = units.get(block.kind, 0) + (block.units or 0)
    sample = Sample(units, sum(block.is_call for block in words), tokens)
    ratio.calibration.remember(ratio.model, vocabulary, sample)


def _learn_ratio(ratio: TokenRatio, kind: Kind, blocks: list[TextPiece], tokens: float) -> None:
    units = sum(block.units or 0 for block in blocks)
    ratio.calibration.learn_ratio(ratio.model, ratio.key(kind), units, round(tokens))


def _learn_unseen(ratio: TokenRatio, thought: list[TextPiece], reasoning: int) -> None:
    seen = ratio.total(thought).value
    if ratio.vocabulary is not None and abs(reasoning - seen) <= max(_SAME, seen * _SAME_SHARE):
        seen = reasoning
    ratio.calibration.learn_spread(ratio.model, "unseen reasoning", reasoning - seen)


def _learn_calls(ratio: TokenRatio, words: list[TextPiece], calls: int, tokens: int) -> None:
    span = ratio.total(words)
    if span.source is Provenance.HEURISTIC:  # then the cost of the calls cannot be separated from that of the text
        written = [block for block in words if block.is_call]
        if len(written) == len(words):
            _learn_ratio(ratio, Kind.JSON, words, tokens)
        return
    ratio.calibration.learn_spread(ratio.model, "call out", (tokens - span.value) / calls)


def _learn_message(ratio: TokenRatio, messages: tuple[Message, ...], tokens: int) -> None:
    """What messages cost beside their text."""
    size = size_of(messages)
    if not size.messages or size.media or size.optional or size.calls:
        return
    text = ratio.total(size.pieces)
    if text.high is not None and text.high - text.low <= _CLEAR * size.messages:
        ratio.calibration.learn_spread(ratio.model, "message", (tokens - text.value) / size.messages)


def _learn_preamble(ratio: TokenRatio, messages: tuple[Message, ...], fingerprint: str, tokens: int) -> None:
    """What instructions and tools cost, from a conversation's first call."""
    size = size_of(messages)
    if size.media or size.optional or size.calls:
        return
    text = ratio.total(size.pieces)
    if text.high is None or text.high - text.low > _CLEAR:
        return
    each = ratio.spread("message", size.messages, otherwise=PER_MESSAGE)
    ratio.calibration.learn_spread(ratio.model, PREAMBLE + fingerprint, tokens - text.value - each.value)
