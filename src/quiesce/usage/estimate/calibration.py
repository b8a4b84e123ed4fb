"""The calibration of estimates by completed calls: tokens per byte, and the cost of messages beside their text.

Keyed by model and by kind of content. A session saves it; `dump()` and `load()` are for programs that do so themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Self, TypeVar

import msgspec
from msgspec import Struct

from .framing import REMEMBERED, Sample

_T = TypeVar("_T")

# Below this a sample says more about what surrounds the text than about the text.
_LEAST_SAMPLE: Final = 24
# The share that what was known keeps at each new sample.
_MEMORY: Final = 0.9
# What an agent's instructions cost is kept for so many of them: some agents have new ones each time.
_MOST_PREAMBLES: Final = 32
PREAMBLE: Final = "preamble "


class _Samples(Struct, frozen=True):
    """The mean and the extremes of what was seen. Older calls count for less: a model's habits change with the task."""

    samples: int
    mean: float
    low: float
    high: float

    @classmethod
    def after(cls, old: Self | None, seen: float) -> Self:
        """What is known after one more sample."""
        if old is None:
            return cls(1, seen, seen, seen)
        weight = max(1 / (old.samples + 1), 1 - _MEMORY)
        mean = old.mean + (seen - old.mean) * weight
        return cls(old.samples + 1, mean, min(old.low, seen), max(old.high, seen))


class Ratio(_Samples, frozen=True):
    """Tokens for each unit of text (a byte, or a token of a vocabulary that may not be quite the model's)."""

    @property
    def margin(self) -> float:
        """How far the next sample may lie outside the extremes seen so far, as a fraction of them."""
        return 0.08 + 0.35 / math.sqrt(self.samples)


class Spread(_Samples, frozen=True):
    """A number of tokens that varies: its mean and its extremes."""

    @property
    def margin(self) -> float:
        """How far the next sample may lie outside the extremes seen so far, in tokens."""
        return 2 + 6 / self.samples


class _Stored(Struct, frozen=True):
    ratios: dict[str, dict[str, Ratio]]
    spreads: dict[str, dict[str, Spread]]
    samples: dict[str, dict[str, tuple[Sample, ...]]] = {}


class Calibration:
    """Ratios and spreads by model and key. Runs in several threads may share it: each update is one replacement."""

    def __init__(self) -> None:
        self.ratios: dict[str, dict[str, Ratio]] = {}
        self.spreads: dict[str, dict[str, Spread]] = {}
        self._samples: dict[str, dict[str, tuple[Sample, ...]]] = {}
        self.updates = 0
        """How often something was learnt: tells a session whether there is anything new to save."""
        self.additions = 0
        """How often something was added that another calibration had learnt."""

    def learn_ratio(self, model: str, key: str, units: int, tokens: int) -> None:
        """A text of `units` cost `tokens`."""
        if units <= 0 or tokens < _LEAST_SAMPLE:
            return
        self.ratios.setdefault(model, {})[key] = Ratio.after(self.ratio(model, key), tokens / units)
        self.updates += 1

    def ratio(self, model: str, key: str) -> Ratio | None:
        """The ratio of a kind of text; None when nothing was learnt about it."""
        return self.ratios.get(model, {}).get(key)

    def learn_spread(self, model: str, key: str, tokens: float) -> None:
        """Something cost `tokens` this time."""
        old = self.spread(model, key)
        spreads = self.spreads.setdefault(model, {})
        if old is None and key.startswith(PREAMBLE):
            _forget_oldest(spreads)
        spreads[key] = Spread.after(old, tokens)
        self.updates += 1

    def spread(self, model: str, key: str) -> Spread | None:
        """The spread of something; None when nothing was learnt about it."""
        return self.spreads.get(model, {}).get(key)

    def remember(self, model: str, vocabulary: str, sample: Sample) -> None:
        """Keep the token counts of a completed answer, to calibrate later estimates. The oldest are dropped."""
        kept = (*self.samples(model, vocabulary), sample)[-REMEMBERED:]
        self._samples.setdefault(model, {})[vocabulary] = kept
        self.updates += 1

    def samples(self, model: str, vocabulary: str) -> tuple[Sample, ...]:
        """The token counts of the last answers that were counted in this vocabulary."""
        return self._samples.get(model, {}).get(vocabulary, ())

    def dump(self, model: str | None = None) -> bytes:
        """Everything learnt, or everything about one model, as JSON."""
        if model is None:
            return msgspec.json.encode(_Stored(self.ratios, self.spreads, self._samples))
        ratios, spreads = self.ratios.get(model, {}), self.spreads.get(model, {})
        samples = self._samples.get(model, {})
        return msgspec.json.encode(_Stored({model: ratios}, {model: spreads}, {model: samples}))

    @classmethod
    def load(cls, stored: bytes | str) -> Self:
        """What `dump()` wrote. Raises `msgspec.ValidationError` or `msgspec.DecodeError` for anything else."""
        found = msgspec.json.decode(stored, type=_Stored)
        calibration = cls()
        calibration.ratios = found.ratios
        calibration.spreads = found.spreads
        calibration._samples = found.samples
        return calibration

    def add(self, other: Calibration) -> None:
        """Add what another calibration has more samples of."""
        self.additions += 1
        for model, ratios in other.ratios.items():
            _take_better(self.ratios.setdefault(model, {}), ratios, lambda ratio: ratio.samples)
        for model, spreads in other.spreads.items():
            _take_better(self.spreads.setdefault(model, {}), spreads, lambda spread: spread.samples)
        for model, samples in other._samples.items():
            _take_better(self._samples.setdefault(model, {}), samples, len)


def _take_better(mine: dict[str, _T], others: dict[str, _T], seen: Callable[[_T], int]) -> None:
    for key, theirs in others.items():
        own = mine.get(key)
        if own is None or seen(own) < seen(theirs):
            mine[key] = theirs


def _forget_oldest(spreads: dict[str, Spread]) -> None:
    preambles = [key for key in spreads if key.startswith(PREAMBLE)]
    for key in preambles[: len(preambles) - _MOST_PREAMBLES + 1]:
        spreads.pop(key, None)
