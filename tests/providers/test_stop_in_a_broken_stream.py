"""A stop at each step of the loop, around a connection that breaks: real sockets, and the wire format of each provider.

The loop's exception handler hears nothing ("Task exception was never retrieved"), the run ends, and the next prompt is
answered on the same agent.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from quiesce import Agent, Retry, tool
from quiesce.conversation.validity import faults
from quiesce.run.handle import Run

from .recordings import ANSWER, ANTHROPIC, GEMINI, PROVIDERS, Provider
from .wire import Play, Wire, chunk, head, wire

pytestmark = pytest.mark.promise("P1", "P5")
each_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=str)
LONG_ENOUGH = 20.0
Break = Literal["close", "reset", "rst"]
BREAKS: tuple[Break, ...] = ("close", "reset", "rst")


class CountingLoop(asyncio.SelectorEventLoop):
    """Calls `before_step` before each callback."""

    before_step: Callable[[], None] | None = None

    def _step(self, callback: Callable[..., Any], *args: Any) -> None:
        if self.before_step is not None:
            self.before_step()
        callback(*args)

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        return super().call_soon(self._step, callback, *args, context=context)

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        return super().call_soon_threadsafe(self._step, callback, *args, context=context)


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"Sunny in {city}"


def broken(provider: Provider, kind: Break) -> list[Play]:
    """The plays of one answer that breaks: before its head, after it, after each event, and after the last one."""
    begin = head(provider.answer.content_type, headers=provider.answer.headers)
    ends = [b"", begin]
    for event in provider.answer.events:
        ends.append(ends[-1] + chunk(event))
    return [Play(each, kind) for each in ends]


class Trials:
    """Plays one break again and again, and stops the run one step later each time, until it has ended by then."""

    def __init__(self, loop: CountingLoop, provider: Provider, server: Wire) -> None:
        self._loop = loop
        self._provider = provider
        self._server = server
        self._agent = Agent(provider.make(server.url), retry=Retry(attempts=1), tools=[weather])
        self.points = 0

    async def stop_at(self, play: Play, step: int) -> bool:
        """Whether the run went on so long."""
        self._server.otherwise = play
        run: Run[Any] = self._agent.start("What colour?", conversation=None)
        steps = reached = 0

        def before_step() -> None:
            nonlocal steps, reached
            steps += 1
            if steps == step and not run.done:
                reached = 1
                run.cancel("injected")

        self._loop.before_step = before_step
        async with asyncio.timeout(LONG_ENOUGH):
            await run.stopped()
        self._loop.before_step = None
        result = run.inspect().result
        assert result is not None
        assert not faults(result.messages)
        assert result.stop_reason in ("cancelled", "error", "end_turn")
        self.points += reached
        return bool(reached)

    async def answers(self) -> None:
        """The next prompt is answered."""
        self._server.otherwise = Play(self._provider.answer.response)
        async with asyncio.timeout(LONG_ENOUGH):
            assert (await self._agent.invoke_async("Go on.", conversation=None)).text == ANSWER


def sweep(provider: Provider, places: Callable[[list[Play]], list[Play]], steps: Callable[[], Iterator[int]]) -> int:
    """Stop at these steps of these plays. Returns the number of stops that came before the end of their run."""
    heard: list[str] = []
    loop = CountingLoop()
    loop.set_exception_handler(
        lambda _, context: heard.append(f"{context.get('message')} {context.get('exception')!r}")
    )

    async def main() -> int:
        async with wire() as server:
            trials = Trials(loop, provider, server)
            for kind in BREAKS:
                for play in places(broken(provider, kind)):
                    for step in steps():
                        if not await trials.stop_at(play, step):
                            break
                    await trials.answers()
            return trials.points

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        points = runner.run(main())
        gc.collect()  # an exception that was never retrieved is reported when its task is freed
    assert heard == []
    return points


@pytest.mark.parametrize("provider", [ANTHROPIC, GEMINI], ids=str)
def test_a_stop_near_a_connection_that_breaks(provider: Provider) -> None:
    """One that hangs up, and one that drains."""
    chosen = random.Random(5)
    points = sweep(provider, lambda plays: chosen.sample(plays, 1), lambda: iter(range(1, 1000, 7)))
    print(f"{provider}: {points} stops")
    assert points > 10


@pytest.mark.proof
@each_provider
def test_a_stop_at_each_step_of_each_break(provider: Provider) -> None:
    points = sweep(provider, lambda plays: plays, lambda: iter(range(1, 1000)))
    print(f"{provider}: {points} stops")
    assert points > 300  # of a run with about 20 steps, on a connection of our own
