"""What completed calls teach about the next ones: tokens per byte, and what messages cost beside their text.

Keyed by model and by kind of content. `dump()` and `load()` let a session keep it.
"""

from __future__ import annotations

import math
from typing import Final, Self

import msgspec
from msgspec import Struct

from .framing import REMEMBERED, Sample

# Below this a sample says more about what surrounds the text than about the text.
_LEAST_SAMPLE: Final = 24
# Older calls count for less: a model's habits change with the task.
_MEMORY: Final = 0.9


class Ratio(Struct, frozen=True):
    """Tokens for each unit of text (a byte, or a token of a vocabulary that may not be quite the model's)."""

    samples: int
    mean: float
    low: float
    high: float

    @property
    def margin(self) -> float:
        """How far the next sample may lie outside what was seen, as a part of it."""
        return 0.08 + 0.35 / math.sqrt(self.samples)


class Spread(Struct, frozen=True):
    """A number of tokens that varies: its mean and its extremes."""

    samples: int
    mean: float
    low: float
    high: float

    @property
    def margin(self) -> float:
        """How far the next one may lie outside what was seen, in tokens."""
        return 2 + 6 / self.samples


class _Stored(Struct, frozen=True):
    ratios: dict[str, dict[str, Ratio]]
    spreads: dict[str, dict[str, Spread]]
    samples: dict[str, dict[str, tuple[Sample, ...]]] = {}


class Calibration:
    """Ratios and spreads by model and key. May be shared by runs in several threads: each lesson is one replacement."""

    def __init__(self) -> None:
        self._ratios: dict[str, dict[str, Ratio]] = {}
        self._spreads: dict[str, dict[str, Spread]] = {}
        self._samples: dict[str, dict[str, tuple[Sample, ...]]] = {}

    def learn_ratio(self, model: str, key: str, units: int, tokens: int) -> None:
        """A text of `units` cost `tokens`."""
        if units <= 0 or tokens < _LEAST_SAMPLE:
            return
        seen = tokens / units
        old = self.ratio(model, key)
        learnt = Ratio(1, seen, seen, seen)
        if old is not None:
            weight = max(1 / (old.samples + 1), 1 - _MEMORY)
            mean = old.mean + (seen - old.mean) * weight
            learnt = Ratio(old.samples + 1, mean, min(old.low, seen), max(old.high, seen))
        self._ratios.setdefault(model, {})[key] = learnt

    def ratio(self, model: str, key: str) -> Ratio | None:
        """What is known of a kind of text."""
        return self._ratios.get(model, {}).get(key)

    def ratios(self, model: str, suffix: str) -> tuple[Ratio, ...]:
        """What is known of all kinds of text in one unit."""
        return tuple(ratio for key, ratio in self._ratios.get(model, {}).copy().items() if key.endswith(suffix))

    def learn_spread(self, model: str, key: str, tokens: float) -> None:
        """Something cost `tokens` this time."""
        old = self.spread(model, key)
        learnt = Spread(1, tokens, tokens, tokens)
        if old is not None:
            weight = max(1 / (old.samples + 1), 1 - _MEMORY)
            mean = old.mean + (tokens - old.mean) * weight
            learnt = Spread(old.samples + 1, mean, min(old.low, tokens), max(old.high, tokens))
        self._spreads.setdefault(model, {})[key] = learnt

    def spread(self, model: str, key: str) -> Spread | None:
        """What is known of something."""
        return self._spreads.get(model, {}).get(key)

    def remember(self, model: str, vocabulary: str, sample: Sample) -> None:
        """An answer that was counted in a vocabulary, and what it cost."""
        kept = (*self.samples(model, vocabulary), sample)[-REMEMBERED:]
        self._samples.setdefault(model, {})[vocabulary] = kept

    def samples(self, model: str, vocabulary: str) -> tuple[Sample, ...]:
        """The last answers that were counted in a vocabulary."""
        return self._samples.get(model, {}).get(vocabulary, ())

    def dump(self) -> bytes:
        """Everything learnt, as JSON."""
        return msgspec.json.encode(_Stored(self._ratios, self._spreads, self._samples))

    @classmethod
    def load(cls, stored: bytes | str) -> Self:
        """What `dump()` wrote. Raises `msgspec.ValidationError` or `msgspec.DecodeError` for anything else."""
        found = msgspec.json.decode(stored, type=_Stored)
        calibration = cls()
        calibration._ratios = found.ratios
        calibration._spreads = found.spreads
        calibration._samples = found.samples
        return calibration
