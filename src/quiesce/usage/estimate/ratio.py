"""From text to tokens, for one model, with the interval that this knowledge deserves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from ..figure import RANK, Provenance
from .calibration import Calibration, Ratio
from .content import Kind, MessageSize, TextPiece
from .framing import PER_CALL, Framing, Sample, framing_of
from .vocabulary import Vocabulary

# A vocabulary that counts within this of what was reported is the model's own; further off, it is only a unit.
_AGREES: Final = 0.02
BYTES_PER_TOKEN: Final = {Kind.PROSE: 4.4, Kind.CODE: 3.4, Kind.JSON: 3.2, Kind.REASONING: 4.2}
# Every run of letters is at least one token in vocabularies that split words first, which is nearly all of them.
_WORD: Final = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
# In other alphabets, and with accents, a run of these letters may be the rest of a word.
_WHOLE_WORD: Final = re.compile(r"(?<![A-Za-z])(?<![^\x00-\x7f])[A-Za-z]+(?:'[a-z]+)?")
# Both for a text without apostrophes: a word begins where an "a" follows a space.
_AS_WORDS: Final = bytes(
    ord("x") if each >= 0x80 else ord("a") if chr(each).isalpha() else ord(" ") for each in range(256)
)
# No vocabulary in use cuts words so small that their letters are more than these many tokens: random letters have up
# to 0.57 in six of them, and random ones of the eight rarest up to 0.71. Digits, signs, capitals, and one or two
# letters between them, as in hexadecimal numbers and base64, may be a token each, and so may a letter of two bytes in
# the Latin, Greek, Cyrillic, Hebrew and Arabic alphabets. Others, and longer ones, may be cut into their bytes.
_PER_SMALL_LETTER: Final = 0.75
# A space belongs to the word after it, but not always to a number or to a letter that is cut into its bytes.
_PER_SPACE: Final = 0.5
_AS_LETTERS: Final = bytes(ord("a") if ord("a") <= each <= ord("z") else ord(" ") for each in range(256))
_FIRST_OF_TWO: Final = b"\xc3\xc4\xc5\xce\xcf\xd0\xd1\xd7\xd8\xd9"
_AS_DIGITS: Final = bytes(
    ord("0") if each in b"0123456789" or (each >= 0xC2 and each not in _FIRST_OF_TWO) else each for each in range(256)
)
_SAMPLE: Final = 65536
# Texts longer than models take are looked at so far, for the most tokens that they can have; beyond, each byte may be
# one. To look at all of them would hold the event loop, for 60 ms with the longest prompt that a server takes.
_LOOKED_AT: Final = 1 << 20
# Short texts vary by whole tokens.
_PAD: Final = 3.0
# What surrounds a call that a model writes, before that was learnt: value, low, high.
_PER_CALL: Final = (PER_CALL, 0.0, 40.0)
# What providers add around each message and each call that they are sent: role, separators, ids.
PER_MESSAGE: Final = (4.0, 0.0, 16.0)
_PER_CALL_SENT: Final = (10.0, 0.0, 40.0)
# A picture or a file costs something, and only the provider knows how much.
_PER_MEDIUM: Final = (1000.0, 16.0, None)


class Span(Struct, frozen=True, gc=False):
    """A guess between two bounds; `high` is None when there is none above."""

    value: float
    low: float
    high: float | None
    source: Provenance

    def plus(self, *others: Span) -> Span:
        """The sum, as uncertain as its most uncertain part."""
        value, low, high, source = self.value, self.low, self.high, self.source
        for other in others:
            value += other.value
            low += other.low
            high = None if high is None or other.high is None else high + other.high
            source = source if RANK[source] >= RANK[other.source] else other.source
        return Span(value, low, high, source)


NOTHING: Final = Span(0, 0, 0, Provenance.REPORTED)


class TokenRatio:
    """Estimates the tokens of texts for one model: in its vocabulary, by its calibration, or by rule of thumb."""

    def __init__(self, model: str, vocabulary: Vocabulary | None, calibration: Calibration) -> None:
        self.model: Final = model
        self.vocabulary: Final = vocabulary
        self.calibration: Final = calibration
        self._framing: tuple[tuple[Sample, ...], Framing] | None = None

    @property
    def framing(self) -> Framing | None:
        """What answers cost beside their words; None where that has not been seen, or there is no vocabulary."""
        if self.vocabulary is None:
            return None
        samples = self.calibration.samples(self.model, self.vocabulary.name)
        if not samples:
            return None
        if self._framing is None or self._framing[0] is not samples:
            self._framing = samples, framing_of(samples)
        return self._framing[1]

    def total(self, texts: Iterable[TextPiece]) -> Span:
        """What texts cost together. Those that are counted are counted in this ratio's unit.

        With neither a vocabulary nor a calibration, the sum is made here directly: that is every run's ordinary case.
        """
        if self.vocabulary is not None or self.model in self.calibration.ratios:
            return NOTHING.plus(*self._measured(texts))
        value, low, high, look = 0.0, 0, 0.0, _LOOKED_AT
        for each in texts:
            if each.text:
                size, fewest, most = _bounds(each.text, look)
                look = max(0, look - size)
                value += size / BYTES_PER_TOKEN[each.kind]
                low += fewest
                high += most
        return Span(value, low, high, Provenance.HEURISTIC) if high else NOTHING

    def _measured(self, texts: Iterable[TextPiece]) -> Iterator[Span]:
        look = _LOOKED_AT
        for each in texts:
            if each.units is None:
                yield self.measure(each.kind, each.text, look)
            else:
                yield self.in_units(each.kind, each.units, each.text, look)
            look = max(0, look - len(each.text))

    def messages(self, size: MessageSize) -> Span:
        """What the texts of messages cost. Those that are not always billed count only for the upper bound."""
        texts = self.total(size.pieces)
        if not size.optional:
            return texts
        optional = self._measured(size.optional)
        return texts.plus(*[Span(0.0, 0.0, span.high, span.source) for span in optional])

    def sent(self, texts: Span, messages: int, calls: int, media: int) -> Span:
        """What messages cost with their texts: what providers add around messages and calls, pictures and files."""
        beside = [self.spread("message", messages, otherwise=PER_MESSAGE)]
        if calls:
            beside.append(self.spread("call in", calls, otherwise=_PER_CALL_SENT))
        if media:
            beside.append(self.spread("medium", media, otherwise=_PER_MEDIUM))
        return texts.plus(*beside)

    def measure(self, kind: Kind, text: str, look: int = _LOOKED_AT) -> Span:
        """What a text costs; `look` is how much of it is looked at."""
        if not text:
            return NOTHING
        vocabulary = self.vocabulary
        if vocabulary is None or vocabulary.takes_long(text):
            return self.in_bytes(kind, text, look)
        return self.in_tokens(kind, vocabulary.count(text))

    def in_units(self, kind: Kind, units: int, text: str, look: int = _LOOKED_AT) -> Span:
        """What a text costs that is counted already, in this ratio's unit."""
        if not units:
            return NOTHING
        return self.in_bytes(kind, text, look) if self.vocabulary is None else self.in_tokens(kind, units)

    def in_tokens(self, kind: Kind, tokens: int) -> Span:
        """What a text costs that has so many tokens in the vocabulary."""
        framing = self.framing
        exact = Span(tokens, tokens, tokens, Provenance.TOKENIZED)
        if framing is not None and framing.fits and framing.clear:
            return exact
        ratio = None
        if self.model in self.calibration.ratios:
            ratio = self.calibration.ratio(self.model, self.key(kind)) or self._from_others(self.key(kind))
        if ratio is None and framing is not None:
            ratio = Ratio(1, framing.ratio, min(1.0, framing.ratio) * 0.7, max(1.0, framing.ratio) * 1.4)
        if ratio is None or abs(ratio.mean - 1) <= _AGREES:
            return exact
        scaled = _calibrated(ratio, tokens)
        if framing is not None and framing.fits:  # either may be true, and the simpler one is likelier
            low, high = min(tokens, scaled.low), max(tokens, scaled.high or 0.0)
            return Span(tokens, low, high, Provenance.TOKENIZED)
        return scaled

    def in_bytes(self, kind: Kind, text: str, look: int = _LOOKED_AT) -> Span:
        """What a text costs by its bytes."""
        size, floor, ceiling = _bounds(text, look)
        span = self._learnt(kind, size)
        if span is None:
            return Span(size / BYTES_PER_TOKEN[kind], floor, ceiling, Provenance.HEURISTIC)
        low = min(max(span.low, floor), ceiling)
        high = max(low, min(span.high or ceiling, ceiling))
        return Span(min(max(span.value, low), high), low, high, span.source)

    def tokens_in(self, kind: Kind, tokens: int) -> float:
        """What a text costs that has so many tokens in the vocabulary, without saying how certain that is."""
        return self.in_tokens(kind, tokens).value

    def tokens_in_bytes(self, kind: Kind, size: int) -> float:
        """What a text of so many bytes costs, without saying how certain that is."""
        learnt = self._learnt(kind, size)
        return size / BYTES_PER_TOKEN[kind] if learnt is None else learnt.value

    def source_of(self, kind: Kind) -> Provenance:
        """What the figures for a kind of text come from."""
        if self.vocabulary is not None:
            return self.in_tokens(kind, 1000).source
        return Provenance.HEURISTIC if self._learnt(kind, 1000) is None else Provenance.CALIBRATED

    def typical(self, key: str, otherwise: float) -> float:
        """What something costs on average; `otherwise` is for when nothing was learnt."""
        learnt = self.calibration.spread(self.model, key)
        return otherwise if learnt is None else max(0.0, learnt.mean)

    def _learnt(self, kind: Kind, size: int) -> Span | None:
        key = f"{kind}/bytes"
        ratio = self.calibration.ratio(self.model, key) or self._from_others(key)
        return None if ratio is None else _calibrated(ratio, size)

    def _from_others(self, key: str) -> Ratio | None:
        """What other kinds of text tell about one that has not been seen yet: not much, but more than nothing."""
        suffix = key[key.index("/") :]
        learnt = self.calibration.ratios.get(self.model, {}).copy()
        others = [ratio for name, ratio in learnt.items() if name.endswith(suffix)]
        if not others:
            return None
        mean = sum(each.mean for each in others) / len(others)
        return Ratio(1, mean, min(each.low for each in others) * 0.7, max(each.high for each in others) * 1.4)

    def key(self, kind: Kind) -> str:
        """The calibration's key for a kind of text in this ratio's unit."""
        return f"{kind}/{'bytes' if self.vocabulary is None else self.vocabulary.name}"

    def spread(self, key: str, times: int, *, otherwise: tuple[float, float, float | None]) -> Span:
        """The tokens of `times` such things. `otherwise` is value, low and high of one, when nothing was learnt."""
        if not times:
            return NOTHING
        spreads = self.calibration.spreads.get(self.model)
        learnt = None if spreads is None else spreads.get(key)
        if learnt is None:
            value, low, high = otherwise
            # A few tokens around a text do not make the count of the text itself any worse.
            source = Provenance.HEURISTIC if self.vocabulary is None or high is None else Provenance.TOKENIZED
            return Span(value * times, low * times, None if high is None else high * times, source)
        low, high = max(0.0, learnt.low - learnt.margin), max(0.0, learnt.high + learnt.margin)
        return Span(max(0.0, learnt.mean) * times, low * times, high * times, Provenance.CALIBRATED)

    def calls(self, times: int) -> Span:
        """What surrounds the calls that a model writes."""
        if not times:
            return NOTHING
        framing = None if self.vocabulary is None else self.framing
        if framing is None or not framing.fits or not framing.calls_seen:
            return self.spread("call out", times, otherwise=_PER_CALL)
        margin = 2 + 6 / framing.calls_seen
        each = framing.per_call
        low, high = max(0.0, each - margin), each + margin
        return Span(each * times, low * times, high * times, Provenance.TOKENIZED)


def _calibrated(ratio: Ratio, units: int) -> Span:
    low = max(0.0, units * ratio.low * (1 - ratio.margin) - _PAD)
    return Span(units * ratio.mean, low, units * ratio.high * (1 + ratio.margin) + _PAD, Provenance.CALIBRATED)


def _bounds(text: str, look: int) -> tuple[int, int, float]:
    """The bytes of a text, and the fewest and the most tokens that it can have, by a look at so many bytes of it."""
    data = text.encode("utf-8", "surrogatepass")
    size = len(data)
    is_ascii = size == len(text)
    data = data[:look]
    letters = b" " + data.translate(_AS_LETTERS)
    single, double, longer = letters.count(b" a"), letters.count(b" aa"), letters.count(b" aaa")  # or longer, each
    small = letters.count(b"a") - (single + double - 2 * longer)
    spaces = data.count(b" ")
    if spaces:
        spaces -= data.translate(_AS_DIGITS).count(b" 0")
    pairs = 0 if is_ascii else len(data) - len(data.translate(None, _FIRST_OF_TWO))
    most = size - small * (1 - _PER_SMALL_LETTER) - spaces * (1 - _PER_SPACE) - pairs + 2
    sample = text[: min(_SAMPLE, look)]
    if "'" in sample:
        fewest = len((_WORD if is_ascii else _WHOLE_WORD).findall(sample))
    else:
        data = data if sample is text else sample.encode("utf-8", "surrogatepass")
        fewest = (b" " + data.translate(_AS_WORDS)).count(b" a")
    return size, max(1, fewest if sample is text else int(fewest * 0.7)), most
