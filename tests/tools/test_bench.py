"""The bench of killable calls runs, and its two kinds of calls do what they are for. How fast is not asked here."""

from __future__ import annotations

import asyncio

import pytest
from bench.killable import measure

pytestmark = pytest.mark.house


def test_the_bench_of_killable_calls_runs() -> None:
    figures = asyncio.run(measure(rounds=20))
    assert figures["ratio"] == figures["process_ms"] / figures["thread_ms"]
    assert min(figures.values()) > 0
