"""What counting costs: while an answer is streamed, at the moment of the stop, and against counting each piece."""

from __future__ import annotations

import asyncio
import statistics
import time

from quiesce import Agent, Limits
from quiesce.testing import Say, ScriptedModel
from quiesce.usage.estimate.counting import VocabularyCounter
from quiesce.usage.estimate.vocabulary import vocabulary_of

CHUNKS = 20_000
TEXT = ("The reader sees every word that was streamed, and the bill is one that can be charged. " * 1000)[: CHUNKS * 4]


def main() -> None:
    vocabulary = vocabulary_of("gpt-4o")
    if vocabulary is None:
        print("splintr-rs is not installed: nothing to measure")
        return
    print(f"an answer of {CHUNKS:,} pieces, {vocabulary.count(TEXT):,} tokens")
    plain, metered = _turn(Limits()), _turn(Limits(output_tokens=10**9))
    print(f"  a turn with a budget inside the answer, to one without: {metered / plain:.2f}x")
    pieces = [TEXT[at : at + 4] for at in range(0, len(TEXT), 4)]
    began = time.perf_counter()
    counter = VocabularyCounter(vocabulary)
    for piece in pieces:
        counter.add(piece)
    counted = counter.tokens
    took = time.perf_counter() - began
    began = time.perf_counter()
    whole = vocabulary.count(TEXT)
    at_once = time.perf_counter() - began
    each = sum(vocabulary.count(piece) for piece in pieces)
    print(f"  piece by piece {took / CHUNKS * 1e6:.2f} us a piece; the whole at once {at_once * 1e3:.2f} ms")
    print(f"  piece by piece {counted:,} tokens, the whole {whole:,}, each piece by itself {each:,}")


def _turn(limits: Limits) -> float:
    async def once() -> float:
        agent = Agent(ScriptedModel([Say(TEXT, chunk=4)], name="openai:gpt-4o"), limits=limits)
        began = time.perf_counter()
        await agent.invoke_async("go")
        return time.perf_counter() - began

    return statistics.median(asyncio.run(once()) for _ in range(5))
