"""The first stop of a process: the vocabulary is not loaded yet, nobody waits for it, and the figures follow.

Each in a process of its own: one that runs other tests has loaded the vocabulary long ago.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.promise("P6")
pytest.importorskip("splintr")

BEGIN = """
import asyncio, sys, threading
from quiesce import Agent, Limits
from quiesce.events import TextDelta
from quiesce.testing import Call, Say, ScriptedModel, Stall, Used
from quiesce.usage import Provenance

WORDS = "The sea is wide and deep and cold. "
CUT, TOKENS = [Say(WORDS * 5), Stall()], 46

def agent(*answers, **options):
    return Agent(ScriptedModel(*answers, name="openai:gpt-4o"), **options)

async def cut(agent, letters=len(WORDS) * 5):
    run, seen = agent.start("Go."), 0
    async for event in run:
        if isinstance(event, TextDelta):
            seen += len(event.text)
            if seen == letters:
                run.cancel()
    return await run

def loaded():
    return "splintr" in sys.modules
"""


def in_a_process(program: str) -> None:
    source = BEGIN + textwrap.dedent(program)
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr


def test_answers_that_are_reported_load_nothing() -> None:
    in_a_process("""
        answer = [Say(WORDS), Used(10, 10)]
        asking = agent(answer, answer)
        for _ in range(2):
            assert asking("Go.").usage.is_final
        assert not loaded()
        assert asking.calibration.updates  # what they teach is counted when somebody wants to keep it
        assert loaded()
    """)


def test_the_figure_at_the_stop_is_rough_and_true_and_is_replaced_once() -> None:
    in_a_process("""
        async def main():
            result = await cut(agent(CUT))
            (entry,) = result.receipt.usage.entries
            assert entry.provisional and not entry.supersedes
            assert entry.usage.output.source is Provenance.HEURISTIC
            assert entry.usage.output.value and entry.usage.output.holds(TOKENS)
            assert not result.receipt.still_running
            usage = await result.usage.final()
            (entry,) = usage.entries
            assert entry.supersedes and not entry.provisional and entry.ended == "hung_up"
            assert entry.usage.output.source is Provenance.TOKENIZED
            assert (entry.usage.output.value, entry.usage.input.source) == (TOKENS, Provenance.TOKENIZED)
            assert result.receipt.usage.entries == (entry,)
            later = await cut(agent(CUT))  # loaded by now: counted at the stop
            assert later.receipt.usage.entries[0].usage.output == entry.usage.output
            assert not later.usage.is_provisional

        asyncio.run(main())
    """)


def test_a_stop_does_not_wait_for_the_vocabulary() -> None:
    in_a_process("""
        from quiesce.usage.estimate import vocabulary

        load, stopped = vocabulary._load, threading.Event()
        vocabulary._load = lambda name: (stopped.wait(), load(name))

        async def main():
            result = await cut(agent(CUT))
            assert result.usage.is_provisional
            stopped.set()
            assert (await result.usage.final()).output.value == TOKENS

        asyncio.run(main())
    """)


def test_earlier_answers_have_taught_what_surrounds_the_words() -> None:
    in_a_process("""
        from quiesce import tool

        @tool
        def look() -> str:
            return "nothing"

        async def main():
            calling = [Call("look", {}), Used(20, 33)]
            asking = agent(calling, [Say(WORDS), Used(30, 10)], [Call("look", {}), Stall()], tools=[look])
            await asking.invoke_async("Go.")
            assert not loaded()
            run = asking.start("Again.")
            await asyncio.sleep(0.1)
            run.cancel()
            usage = await (await run).usage.final()
            assert usage.output.value in range(30, 36), usage  # ten were assumed for a call, without the first answer

        asyncio.run(main())
    """)


def test_the_count_comes_although_the_loop_has_closed() -> None:
    in_a_process("""
        result = asyncio.run(cut(agent(CUT)))
        usage = result.usage.wait(timeout=20)
        assert (usage.output.value, usage.is_provisional) == (TOKENS, False)
        assert result.receipt.usage.output.value == TOKENS
    """)


def test_the_task_that_waits_is_cancelled() -> None:
    in_a_process("""
        async def main():
            run = agent(CUT).start("Go.")
            waiting = asyncio.ensure_future(asyncio.wait_for(run, 0.2))
            await asyncio.wait((waiting,))
            run.cancel()
            receipt = await run.stopped()
            await run.usage.final()
            assert receipt.usage.output.value == TOKENS

        asyncio.run(main())
    """)


def test_a_limit_in_tokens_counts_in_the_vocabulary_from_the_first_word() -> None:
    in_a_process("""
        result = agent(CUT, limits=Limits(output_tokens=30))("Go.", timeout=20)
        assert result.stop_reason == "limit"
        assert result.usage.output.value in range(30, 36)
        assert result.usage.output.source is Provenance.TOKENIZED
    """)


def test_a_run_with_a_late_count_is_freed_after_it() -> None:
    in_a_process("""
        import gc, weakref

        async def stopped(asking):
            run = asking.start("Go.")
            await asyncio.sleep(0.2)
            run.cancel()
            return await run, weakref.ref(run._state)

        async def main():
            asking = agent(CUT)
            gc.disable()
            result, state = await stopped(asking)
            assert state() is not None  # the receipt gets the figure through it
            await result.usage.final()
            await asyncio.sleep(0.1)
            assert result.receipt.usage.output.value == TOKENS
            assert state() is None

        asyncio.run(main())
    """)


def test_a_stop_does_not_wait_for_the_list_of_prices() -> None:
    pytest.importorskip("genai_prices")
    in_a_process("""
        import importlib
        from quiesce.usage import price_list

        may_load, real = threading.Event(), price_list.published_price

        def held(model):
            assert threading.current_thread().name == "quiesce-prices", "the loop has loaded the list"
            assert may_load.wait(30)
            return real(model)

        price_list.published_price = held

        async def main():
            result = await cut(agent(CUT))
            (entry,) = result.receipt.usage.entries
            assert entry.provisional and entry.cost is None and result.receipt.usage.cost is None
            price_list.published_price = real
            may_load.set()
            usage = await result.usage.final()
            assert usage.cost is not None and usage.cost.value and not usage.entries[0].provisional
            assert result.receipt.usage.cost == usage.cost
            priced = await agent([Say(WORDS), Used(10, 10)]).invoke_async("Go.")
            assert priced.cost.value and priced.usage.is_final

        asyncio.run(main())
    """)


def test_the_first_answer_of_a_process_has_its_price() -> None:
    pytest.importorskip("genai_prices")
    in_a_process("""
        result = agent([Say(WORDS), Used(10, 10)])("Go.")
        assert result.cost is not None and result.cost.value and result.usage.is_final
    """)


def test_a_limited_cost_has_its_price_at_the_start() -> None:
    pytest.importorskip("genai_prices")
    in_a_process("""
        result = agent([Say(WORDS), Used(10, 10)], limits=Limits(cost="1"))("Go.")
        assert result.cost.value and result.stop_reason == "end_turn"
    """)
