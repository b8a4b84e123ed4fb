"""The two versions of the demo: with a user at the keyboard, and without."""

from __future__ import annotations

import asyncio
from typing import Final

from ..agent import AnyAgent
from ..cancellation import Mode, ModeName, Source, stop_on_signals
from ..events import ToolEnded
from ..hooks import OnLateOutcome
from ..phases import Phase
from ..receipt import Receipt
from ..run.handle import Run
from .baker import FIRST_PROMPT, build_agent
from .keyboard import on_escape, read_line
from .prologue import real_model
from .screen import Screen

_FAREWELLS: Final = frozenset({"quit", "exit", "bye", "q"})
_NOTICES: Final = {
    Mode.AFTER_TOOLS: "Tools that run may finish; no more are started. Ctrl-C again: stop them now.",
    Mode.NOW: "Tools get only their grace. Ctrl-C again: not even that.",
    Mode.KILL: "No grace for anything.",
}


async def by_hand(screen: Screen, *, prologue: bool) -> None:
    """The user stops the agent, then continues the same conversation."""
    screen.title("Press Esc or Ctrl-C to stop it, at any moment you like.")
    if prologue:
        await real_model(screen)
    agent = _new_agent(screen)
    prompt: str | None = FIRST_PROMPT
    screen.prompt(FIRST_PROMPT)
    while prompt is not None:
        screen.receipt(await _run_by_hand(agent, prompt, screen))
        screen.notice("The same conversation goes on: type something, Enter for 'go on', Ctrl-D to leave.")
        screen.ask()
        line = await read_line()
        screen.answered()
        prompt = None if line is None or line.lower() in _FAREWELLS else line or "go on"
    screen.goodbye()


async def by_itself(screen: Screen, *, prologue: bool) -> None:
    """Without a keyboard: stop half way, show the receipt, and continue the same conversation."""
    screen.title("No terminal here, so it stops itself half way.")
    if prologue:
        await real_model(screen)
    agent = _new_agent(screen, pace=0.15)
    screen.prompt(FIRST_PROMPT)
    run = agent.start(FIRST_PROMPT)
    async for event in run:
        screen.show(event)
        if isinstance(event, ToolEnded) and not run.done:  # one tool is done, the other one is still at it
            run.cancel("half way")
    screen.receipt(await run.stopped())
    screen.notice("The same agent takes the next prompt:")
    screen.prompt("go on")
    again = agent.start("go on")
    async for event in again:
        screen.show(event)
    screen.receipt(await again.stopped())
    screen.goodbye()


async def _run_by_hand(agent: AnyAgent, prompt: str, screen: Screen) -> Receipt:
    run = agent.start(prompt)
    with stop_on_signals(_Announced(run, screen)), on_escape(lambda: run.cancel("Esc was pressed")):
        async for event in run:
            screen.show(event)
    return await run.stopped()


def _new_agent(screen: Screen, pace: float = 1.0) -> AnyAgent:
    agent = build_agent(pace)

    @agent.hook(OnLateOutcome)
    def tell(event: OnLateOutcome) -> None:
        late = event.outcome
        screen.notice(f"Later: {late.name}, which was abandoned, ended {late.after:.1f} s after that: {late.detail}")

    return agent


class _Announced:
    """Stops a run on a signal and shows a notice, because a gentle stop may take a while."""

    def __init__(self, run: Run, screen: Screen) -> None:
        self._run: Final = run
        self._screen: Final = screen
        self._loop: Final = asyncio.get_running_loop()

    def cancel(self, reason: str = "", *, mode: ModeName | Mode = Mode.NOW, source: Source = "user") -> bool:
        """Stop the run. The notice is printed later, because a signal handler must not print."""
        if self._run.phase is Phase.ACTING:
            self._loop.call_soon_threadsafe(self._screen.notice, _NOTICES[Mode(mode)])
        return self._run.cancel(reason, mode=mode, source=source)
