"""What an answer costs beside its words: the mark at its end, and what surrounds each call of a tool.

Neither is ever streamed. Both are constant for a model, so a few completed answers tell them apart: what was reported
is the count of the words, plus an end, plus so much for each call. A count that such a line explains is a count in the
model's own vocabulary; one that it does not explain is off by a factor, and only a unit.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

# How many answers are remembered.
REMEMBERED: Final = 12
# What is taken for granted before anything was learnt, and how little that weighs against what was seen.
_END, _END_WEIGHT = 1.0, 0.05
PER_CALL: Final = 10.0
_CALL_WEIGHT: Final = 0.001
# Ends and calls that are longer than this do not exist; then the count itself is off.
_LONGEST_END: Final = 16.0
_LONGEST_CALL: Final = 80.0
# How far an answer may lie off the line: names and braces are not always cut alike.
_OFF: Final = 3.0
_OFF_SHARE: Final = 0.02
# A single answer that is off by no more than this has not been miscounted; by more, it may have been.
_CLEARLY_AN_END: Final = 4.0
# Answers whose lengths differ by so much show whether what was added grows with them.
_TELLING: Final = 100


class Sample(Struct, frozen=True):
    """One completed answer: its words by kind, in tokens of the vocabulary, its calls, and what was reported."""

    units: dict[str, int]
    calls: int
    tokens: int

    @property
    def counted(self) -> int:
        """All its words."""
        return sum(self.units.values())

    @property
    def beside(self) -> int:
        """What it cost beside its words."""
        return self.tokens - self.counted


class Framing(Struct, frozen=True):
    """The line through some samples.

    `fits` says that it explains them, `clear` that nothing else would, and `ratio` is what a token of the count costs
    if it does not.
    """

    end: float
    per_call: float
    fits: bool
    ratio: float
    calls_seen: int
    clear: bool


def framing_of(samples: tuple[Sample, ...]) -> Framing:
    """The best line through some samples."""
    # Least squares with a weak prior, so that one sample already says something about both numbers.
    ends, both, calls = float(len(samples)), 0.0, 0.0
    right_end, right_call = 0.0, 0.0
    for sample in samples:
        both += sample.calls
        calls += sample.calls**2
        right_end += sample.beside
        right_call += sample.beside * sample.calls
    ends, calls = ends + _END_WEIGHT, calls + _CALL_WEIGHT
    right_end, right_call = right_end + _END_WEIGHT * _END, right_call + _CALL_WEIGHT * PER_CALL
    determinant = ends * calls - both * both
    end = (right_end * calls - right_call * both) / determinant
    per_call = (right_call * ends - right_end * both) / determinant
    return Framing(
        end=end,
        per_call=max(0.0, per_call),
        fits=_fits(samples, end, per_call),
        ratio=sum(each.tokens for each in samples) / max(1, sum(each.counted for each in samples)),
        calls_seen=sum(each.calls for each in samples),
        clear=_clear(samples),
    )


def _fits(samples: tuple[Sample, ...], end: float, per_call: float) -> bool:
    if not (-_OFF <= end <= _LONGEST_END and -_OFF <= per_call <= _LONGEST_CALL):
        return False
    off = sum(
        abs(sample.beside - end - per_call * sample.calls) > max(_OFF, _OFF_SHARE * sample.counted)
        for sample in samples
    )
    return off <= len(samples) // 4  # now and then a provider leaves something out of a stream


def _clear(samples: tuple[Sample, ...]) -> bool:
    """Whether something was added to each answer, and not a share of it: short answers cannot tell the two apart."""
    plain = [sample for sample in samples if not sample.calls]
    if max((sample.beside for sample in plain), default=0) <= _CLEARLY_AN_END:
        return True
    sizes = [sample.counted for sample in plain]
    return max(sizes) - min(sizes) >= _TELLING
