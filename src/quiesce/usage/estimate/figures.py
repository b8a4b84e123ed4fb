"""The figures of one call, from what the provider reported and what was received.

What the provider reported stands. For the rest: the input starts from the last call of the same conversation whose
input was reported, since the loop sends its prefix again, and only what is new is estimated; the output is counted in
the model's vocabulary, or scaled by the calibration. Reasoning that is billed but never streamed leaves the interval
open above, unless the request itself limits the answer.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct

from ...messages import Message
from ..figure import NONE, Figure, Provenance, reported
from ..ledger import TokenUsage
from .answer_count import Block, count_answer
from .calibration import PREAMBLE
from .content import Definitions, Kind, MessageSize, Preamble, TextPiece, size_of
from .message_size import MessageSizer
from .ratio import NOTHING, Span, TokenRatio
from .received import ReceivedAnswer

# What a provider adds to a conversation that it was not sent: a few tokens, or a hidden prompt when there are tools.
# Value, low, high.
_HIDDEN_PROMPT: Final = (4.0, 0.0, 64.0)
_HIDDEN_TOOL_PROMPT: Final = (100.0, 0.0, 800.0)
# What is not known of a model may be added too: xAI puts about 190 tokens before every conversation.
_UNKNOWN_PROMPT: Final = (4.0, 0.0, 400.0)
_XAI_PROMPT: Final = (190.0, 0.0, 400.0)
_IS_GROK: Final = r"^xai:|grok"
# What can be on its way, or held back by the provider, at the moment of the hang-up.
_IN_FLIGHT: Final = 16
_IN_FLIGHT_SHARE: Final = 0.03
_END_MARK: Final = 8
# How far a provider's own counter may be off.
_COUNTER_OFF: Final = 4
_COUNTER_OFF_SHARE: Final = 0.01

# Models that bill reasoning which they do not stream, or stream only as a summary.
_HIDES_REASONING: Final = r"(^|[/:.])o[134](-|$)|gpt-[5-9]|gemini-(2\.5|[3-9])|grok-(3-mini|[4-9])"
_SUMS_UP_REASONING: Final = r"claude-(?:[a-z]+-)?[4-9]|claude-3-7"


# So many characters are counted in a vocabulary, or measured in bytes, in less than a millisecond. So many messages are
# new in a turn, or in a conversation that has just begun.
_COUNTED_IN_ADVANCE: Final = 4000
_MEASURED_IN_ADVANCE: Final = 16_000
_MESSAGES_IN_ADVANCE: Final = 8


class _Traits(NamedTuple):
    """What the name of a model tells."""

    is_grok: bool
    hides_reasoning: bool
    sums_up_reasoning: bool


@lru_cache(maxsize=256)
def _traits(model: str) -> _Traits:
    patterns = (_IS_GROK, _HIDES_REASONING, _SUMS_UP_REASONING)
    return _Traits(*[re.search(pattern, model) is not None for pattern in patterns])


class SentRequest(Struct):
    """One request: what went out."""

    messages: tuple[Message, ...]
    preamble: Preamble
    max_tokens: int | None = None
    estimate: InputEstimate | None = None
    """The last estimate of its input."""


class Anchor(Struct, frozen=True):
    """The last call of a conversation whose input was reported."""

    count: int
    last: Message
    fingerprint: str
    input: int

    def fits(self, sent: SentRequest) -> bool:
        """Whether a request begins with the very messages of that call."""
        return (
            len(sent.messages) >= self.count
            and sent.messages[self.count - 1] is self.last
            and self.fingerprint == sent.preamble.fingerprint
        )


class InputEstimate(NamedTuple):
    """The estimated input of one request, and what it was made from."""

    figure: Figure
    ratio: TokenRatio
    learnt: tuple[int, int]
    anchor: Anchor | None


class KnownConversation:
    """One conversation: its last reported input, and the estimate of its messages, of which only new ones are read.

    The estimate begins again when the estimator has learnt something, or the vocabulary was loaded, or when the
    conversation does not begin as it did.
    """

    def __init__(self, anchor: Anchor | None = None) -> None:
        self.anchor = anchor
        self.saved = 0
        """How many updates of the calibration its session has saved."""
        self.sizer: MessageSizer | None = None
        self._count = 0
        self._last: Message | None = None
        self._basis: tuple[TokenRatio, int, int] | None = None
        self._counts = (0, 0, 0)
        self._texts = NOTHING

    def known_of(self, ratio: TokenRatio, messages: tuple[Message, ...]) -> int:
        """How many of the messages are in the estimate already."""
        basis = ratio, ratio.calibration.updates, ratio.calibration.additions
        begins_alike = len(messages) >= self._count and (not self._count or messages[self._count - 1] is self._last)
        if basis != self._basis or not begins_alike:
            self._count, self._basis, self._counts, self._texts = 0, basis, (0, 0, 0), NOTHING
        return self._count

    def measure(self, ratio: TokenRatio, messages: tuple[Message, ...], size: MessageSize) -> Span:
        """What all the messages cost. `size` is that of the new ones."""
        counts, texts = self._counts, ratio.messages(size)
        self._texts = self._texts.plus(texts) if self._count else texts
        self._counts = counts[0] + size.messages, counts[1] + size.calls, counts[2] + size.media
        self._count, self._last = len(messages), messages[-1] if messages else None
        return ratio.sent(self._texts, *self._counts)


class FigureEstimator:
    """Figures for the calls of one model."""

    def __init__(self, ratio: TokenRatio, served: str) -> None:
        self.ratio: Final = ratio
        # The model that answers: behind a deployment, that is not the one that was asked for.
        self._model: Final = served.lower()
        # The last estimate of a preamble: many requests have the same one.
        self._measured_preamble: tuple[Preamble, tuple[int, int], Span] | None = None

    def usage(self, sent: SentRequest, received: ReceivedAnswer, known: KnownConversation) -> TokenUsage:
        """The usage of one call: what was reported, and estimates, marked as such, for what was not."""
        report = received.report
        if report is not None and report.input is not None and report.server_tools and not report.final:
            sending = Figure(report.input, report.input, None, Provenance.PARTIAL)
        elif report is not None and report.input is not None:
            sending = reported(report.input)
        elif received.counted_input is not None:
            sending = _figure(_as_counted(received.counted_input), least=1)
        else:
            sending = self.input(sent, known)
        output, reasoning = self._output(sent, received)
        silent = report is None or report.input is None
        cached = Figure(None, 0, sending.high, Provenance.UNKNOWN) if silent else NONE
        return TokenUsage(
            input=sending,
            output=output,
            cache_read=cached if report is None or report.cache_read is None else reported(report.cache_read),
            cache_write=cached if report is None or report.cache_write is None else reported(report.cache_write),
            reasoning=reasoning,
        )

    # --- Input --------------------------------------------------------------------------------------------------

    def input(self, sent: SentRequest, known: KnownConversation) -> Figure:
        """What a request cost to send. Estimated once, unless something was learnt since."""
        ratio, last = self.ratio, sent.estimate
        learnt = ratio.calibration.updates, ratio.calibration.additions
        if last is None or last.ratio is not ratio or last.anchor is not known.anchor or last.learnt != learnt:
            last = self._estimate(sent, known, size_of(sent.messages[self._known_of(sent, known) :]))
        return last.figure

    def prepare(self, sent: SentRequest, known: KnownConversation) -> None:
        """Estimate the input in advance. What is long takes its time, and is left for later."""
        is_slow = self.ratio.vocabulary is not None
        if is_slow and sent.preamble.length > _COUNTED_IN_ADVANCE:
            return
        new = sent.messages[self._known_of(sent, known) :]
        if len(new) <= _MESSAGES_IN_ADVANCE:
            size = size_of(new)
            length = sum([len(piece.text) for piece in (*size.pieces, *size.optional)])
            if length <= (_COUNTED_IN_ADVANCE if is_slow else _MEASURED_IN_ADVANCE):
                self._estimate(sent, known, size)
                return
        self._preamble(sent.preamble)

    def _known_of(self, sent: SentRequest, known: KnownConversation) -> int:
        """How many messages of a request need not be estimated: their input was reported, or is estimated already."""
        anchor = known.anchor
        return anchor.count if anchor is not None and anchor.fits(sent) else known.known_of(self.ratio, sent.messages)

    def _estimate(self, sent: SentRequest, known: KnownConversation, size: MessageSize) -> InputEstimate:
        """Estimate the input: what came after the last reported input, or all. `size` is that of the new messages."""
        ratio, anchor = self.ratio, known.anchor
        learnt = ratio.calibration.updates, ratio.calibration.additions
        if anchor is None or not anchor.fits(sent):
            figure = _figure(self._preamble(sent.preamble).plus(known.measure(ratio, sent.messages, size)), least=1)
        elif len(sent.messages) == anchor.count:
            figure = Figure(anchor.input, anchor.input, anchor.input, Provenance.CALIBRATED)
        else:
            before = Span(anchor.input, anchor.input, anchor.input, Provenance.REPORTED)
            whole = ratio.sent(before.plus(ratio.messages(size)), size.messages, size.calls, size.media)
            figure = _figure(whole, least=anchor.input)
        sent.estimate = estimate = InputEstimate(figure, ratio, learnt, anchor)
        return estimate

    def _preamble(self, preamble: Preamble) -> Span:
        calibration, last = self.ratio.calibration, self._measured_preamble
        basis = calibration.updates, calibration.additions
        if last is not None and last[0] is preamble and last[1] == basis:
            return last[2]
        spreads = calibration.spreads.get(self.ratio.model)
        learnt = None if spreads is None else spreads.get(PREAMBLE + preamble.fingerprint)
        if learnt is not None:
            # It is the same text each time; what varies is only how well the messages beside it were estimated.
            pad = learnt.margin
            span = Span(learnt.mean, max(0.0, learnt.low - pad), learnt.high + pad, Provenance.CALIBRATED)
        else:
            span = self._measure_preamble(preamble)
        self._measured_preamble = preamble, basis, span
        return span

    def _measure_preamble(self, preamble: Preamble) -> Span:
        """What instructions, tools and the schema of the output cost, with what the provider adds to them."""
        ratio, definitions = self.ratio, preamble.definitions
        is_text, is_grok = not definitions.tools and not definitions.schema, _traits(self._model).is_grok
        source = Provenance.TOKENIZED if is_text and ratio.vocabulary is not None else Provenance.HEURISTIC
        parts = self._definitions(definitions)
        if not is_text:
            parts.append(Span(*_HIDDEN_TOOL_PROMPT, source))
        if is_grok or ratio.vocabulary is None:
            parts.append(Span(*(_XAI_PROMPT if is_grok else _UNKNOWN_PROMPT), source))
        elif is_text:
            parts.append(Span(*_HIDDEN_PROMPT, source))
        instructions = preamble.instructions
        span = ratio.total((TextPiece(Kind.PROSE, instructions),)) if instructions else NOTHING
        return span.plus(*parts)

    def _definitions(self, definitions: Definitions) -> list[Span]:
        """What the tools cost, and the schema of the output."""
        ratio, parts = self.ratio, list[Span]()
        tools, plain_tools, schema = definitions.tools, definitions.plain_tools, definitions.schema
        if tools:
            # Providers rewrite tools in a form of their own, shorter or longer. Gemini does not bill all of them.
            span = ratio.total((TextPiece(Kind.JSON, tools),))
            plain = span if plain_tools is tools else ratio.total((TextPiece(Kind.JSON, plain_tools),))
            least = 0.0 if "gemini" in self._model else plain.low * 0.2
            parts.append(Span(span.value * 0.8, least, (span.high or 0.0) * 2, span.source))
        if schema:
            span = ratio.total((TextPiece(Kind.JSON, schema),))
            parts.append(Span(span.value * 0.8, 0.0, (span.high or 0.0) * 2, span.source))
        return parts

    # --- Output -------------------------------------------------------------------------------------------------

    def _output(self, sent: SentRequest, received: ReceivedAnswer) -> tuple[Figure, Figure]:
        report = received.report
        if report is not None and report.final and report.output is not None:
            return reported(report.output), NONE if report.reasoning is None else reported(report.reasoning)
        counted = count_answer(self.ratio.vocabulary, received.blocks, received.counter)
        words: list[TextPiece] = []
        streamed: list[TextPiece] = []
        least, calls, is_silent = 1, 0, True
        for block in counted:
            (streamed if block.kind is Kind.REASONING else words).append(block)
            calls += block.is_call
            is_silent = is_silent and not block.text
        if is_silent and (report is None or not report.output):
            unseen = Figure(None, 0, sent.max_tokens, Provenance.UNKNOWN)
            return unseen, unseen if self._hides(streamed=bool(counted)) else NONE
        by_provider = received.counted_output
        span = self.ratio.total(words) if by_provider is None else _as_counted(by_provider)
        if calls:
            span = span.plus(self.ratio.calls(calls))
        thought = self._thought(streamed)
        if thought is not NOTHING:
            span = span.plus(thought)
        if report is not None and report.output is not None:
            least = max(report.output, 1)
            span = self._onward(report.output, received.since, span)
        span = _capped(self._outlook(span, received), sent.max_tokens)
        return _figure(span, least=least), self._reasoning(sent, received, thought)

    def _thought(self, streamed: list[TextPiece]) -> Span:
        """What the reasoning costs, streamed or not."""
        hides = self._hides(streamed=bool(streamed))
        received = self.ratio.total(streamed) if streamed else NOTHING
        if not hides:
            return received
        learnt = self.ratio.calibration.spread(self.ratio.model, "unseen reasoning")
        more = 0.0 if learnt is None else max(0.0, learnt.mean)
        source = Provenance.HEURISTIC if learnt is None else Provenance.CALIBRATED
        return Span(received.value + more, 0.0, None, source)

    def _hides(self, *, streamed: bool) -> bool:
        """Whether the model bills reasoning that is not `streamed`, or that is more than what is."""
        spreads = self.ratio.calibration.spreads.get(self.ratio.model)
        learnt = None if spreads is None else spreads.get("unseen reasoning")
        if learnt is not None and learnt.high > learnt.margin:
            return True
        traits = _traits(self._model)
        return traits.hides_reasoning or (streamed and traits.sums_up_reasoning)

    def _onward(self, seen: int, since: tuple[Block, ...] | None, whole: Span) -> Span:
        """From a report in the middle of the answer on: that much is certain, and only what came since is counted."""
        if since is None:  # it came before the first word, and says nothing about any
            high = None if whole.high is None else max(whole.high, seen)
            source = whole.source if whole.value else Provenance.PARTIAL
            return Span(max(whole.value, seen), max(whole.low, seen), high, source)
        later = NOTHING
        for block in since:
            later = later.plus(self._rest(block))
        calls = sum(bool(block.name) for block in since)
        later = later.plus(self.ratio.calls(calls))
        high = None if later.high is None else seen + later.high
        return Span(seen + later.value, seen, high, Provenance.PARTIAL)

    def _rest(self, block: Block) -> Span:
        """What the rest of a block costs, where the first token may have begun before it."""
        kind = Kind.JSON if block.kind == "arguments" else Kind.PROSE
        rest = block.parts.text()
        span = self.ratio.measure(kind, block.context + block.name + rest)
        if not block.context or span.high is None or not rest:
            return span if rest or block.name else NOTHING
        before = self.ratio.measure(kind, block.context).value
        least = 0.0 if before >= span.low else span.low - before
        return Span(max(0.0, span.value - before), least, max(0.0, span.high - before), span.source)

    def _outlook(self, span: Span, received: ReceivedAnswer) -> Span:
        """What may be billed beyond what was received."""
        value, low, high, source = span.value, span.low, span.high, span.source
        if high is None or (received.bill_goes_on and not received.complete):
            return Span(value, low, None, source)
        if received.complete:
            return Span(value, low, high + _END_MARK, source)
        more = _IN_FLIGHT + value * _IN_FLIGHT_SHARE
        return Span(value + received.in_flight, low, high + max(more, received.in_flight), source)

    def _reasoning(self, sent: SentRequest, received: ReceivedAnswer, thought: Span) -> Figure:
        report = received.report
        if report is not None and report.reasoning is not None:
            known = Span(report.reasoning, report.reasoning, None, Provenance.PARTIAL)
            return _figure(_capped(known, sent.max_tokens))
        if not thought.value:
            return NONE if thought.high == 0 else Figure(None, 0, sent.max_tokens, Provenance.UNKNOWN)
        return _figure(_capped(self._outlook(thought, received), sent.max_tokens))


def _figure(span: Span, *, least: int = 0) -> Figure:
    """A span in whole tokens, and never less than is known."""
    low = max(least, math.floor(span.low + 1e-9), 0)
    high = None if span.high is None else max(low, math.ceil(span.high - 1e-9))
    value = max(low, round(span.value))
    return Figure(value if high is None else min(value, high), low, high, span.source)


def _as_counted(tokens: int) -> Span:
    """What a provider's own counter says, which providers call an estimate, off by little."""
    off = _COUNTER_OFF + tokens * _COUNTER_OFF_SHARE
    return Span(tokens, tokens - off, tokens + off, Provenance.COUNTED)


def _capped(span: Span, most: int | None) -> Span:
    """No answer is longer than the request allows."""
    if most is None or (span.high is not None and span.high <= most):
        return span
    return Span(span.value, span.low, max(float(max(most, 0)), span.low), span.source)


def refused() -> TokenUsage:
    """The usage of a request that the provider refused: none, for certain."""
    return TokenUsage(NONE, NONE)
