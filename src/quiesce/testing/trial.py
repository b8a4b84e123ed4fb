"""One play of a scenario, stopped once or not at all, and everything that is wrong with what it left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from msgspec import Struct

from ..agent import Agent
from ..conversation.sealing import faults
from ..messages import Prompt
from .injector import EXPECTED_CAUSE, Injector, Shot
from .invariants import grace_now, late_end, violations
from .scenario import Stage, WatchedRun
from .virtual_time import Stuck, VirtualLoop

Scenario: TypeAlias = Callable[[Stage], Awaitable[object]]

_PATIENT: Final = ("after_turn", "after_tools", "escalate")
_THROUGH_CALLER: Final = ("task", "twice")


class Take(Struct):
    """What one play showed: how many points it had, what was wrong, and how each of its runs ended."""

    points: int
    faults: list[str]
    ends: list[tuple[str, str]]


class Trial:
    """A stage with an injector on a virtual loop."""

    def __init__(self, shot: Shot | None, kind: str) -> None:
        self._shot: Final = shot
        self._loop: Final = VirtualLoop()
        self._stage: Final = Stage()
        self._injector: Final = Injector(self._loop, self._stage, shot, count=kind)
        self._injector.on_fire = self._on_fire
        self._injector.after_step = self._after_step
        self._allowance = 0.0
        self._run_knows = False
        self._faults: Final[list[str]] = []

    def play(self, scenario: Scenario, follow_up: Prompt | None, unstopped: Take | None) -> Take:
        """Play it, let it come to rest, and check every promise. `unstopped` is the same play without a stop."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            raised = self._run_scenario(runner, scenario)
            self._faults.extend(self._check_raised(raised))
            if not self._faults:
                self._faults.extend(self._run_aftermath(runner, follow_up))
            if not self._faults and unstopped is not None:
                self._faults.extend(self._compare(unstopped))
            self._stage.close()
        results = (watched.run.inspect().result for watched in self._stage.watched)
        ends = [(result.stop_reason, result.text) for result in results if result is not None]
        return Take(self._injector.points, self._faults, [(str(reason), text) for reason, text in ends])

    # --- While it plays -----------------------------------------------------------------------------------------

    def _on_fire(self, victim: WatchedRun) -> None:
        mode = "kill" if self._shot is not None and self._shot.source == "kill" else "now"
        self._allowance = grace_now(victim, mode, self._stage.patience)

    def _after_step(self, victim: WatchedRun) -> None:
        fired = self._injector.fired_at is not None
        if self._shot is None or fired:
            self._faults.extend(f"P2: while running: {fault}" for fault in faults(victim.run.messages))
            self._faults.extend(f"P2: the settled part: {fault}" for fault in faults(victim.agent.messages))
        if fired and not self._run_knows:
            # A task that is cancelled hears of it some steps later; a tool that started in between has its grace too.
            self._on_fire(victim)
            self._run_knows = victim.run.token.cancelled

    def _run_scenario(self, runner: asyncio.Runner, scenario: Scenario) -> BaseException | None:
        async def main() -> None:
            self._stage.caller = asyncio.current_task()
            await scenario(self._stage)
            for watched in self._stage.watched:
                await watched.run.stopped()

        self._injector.arm()
        try:
            runner.run(main())
        except Stuck as stuck:
            self._faults.append(f"P1: {stuck}")
        except (Exception, asyncio.CancelledError) as error:
            return error
        finally:
            self._injector.disarm()
        return None

    # --- When it has ended --------------------------------------------------------------------------------------

    def _check_raised(self, raised: BaseException | None) -> list[str]:
        """P7: an outside cancellation is passed on, ours never is, and nothing else is raised."""
        cancelled = isinstance(raised, asyncio.CancelledError)
        if raised is not None and not cancelled:
            return [f"P7: the scenario raised {type(raised).__name__}: {raised}"]
        source = "" if self._shot is None or self._injector.fired_at is None else self._shot.source
        if source == "task" and not cancelled:
            return ["P7: the cancellation of the caller was swallowed"]
        if cancelled and source not in _THROUGH_CALLER:
            return ["P7: a cancellation leaked into the caller"]
        return []

    def _run_aftermath(self, runner: asyncio.Runner, follow_up: Prompt | None) -> list[str]:
        async def main() -> list[str]:
            found: list[str] = []
            for watched in self._stage.watched:
                await asyncio.wait_for(watched.run.stopped(), 1000)
                found += violations(watched)
            await asyncio.sleep(0)
            found += self._check_tasks()
            victim = self._stage.victim
            if victim is not None:
                found += self._check_victim(victim)
                if follow_up is not None and not found:
                    found += await self._follow_up(victim.agent, follow_up)
            return found

        try:
            return runner.run(main())
        except (Stuck, TimeoutError) as error:
            return [f"P1: a run never ended: {error}"]

    def _check_tasks(self) -> list[str]:
        """P5: no task is left, except what a receipt names."""
        left = {task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()}
        results = (watched.run.inspect().result for watched in self._stage.watched)
        named = {name for result in results if result is not None for name in result.receipt.still_running}
        return [f"P5: task {name!r} is left" for name in left if not _is_named(name, named)]

    def _check_victim(self, victim: WatchedRun) -> list[str]:
        """P1 and P7: it ended in time, and gives the right cause."""
        shot, stage, result = self._shot, self._stage, victim.run.inspect().result
        if shot is None or self._injector.fired_at is None or result is None:
            return []
        found: list[str] = []
        if not (stage.own_causes and shot.source in _PATIENT):
            found += late_end(victim, self._injector.fired_at, self._allowance)
        cause = result.receipt.cause
        expected = {EXPECTED_CAUSE[shot.source], *stage.own_causes}
        if cause is not None and cause.source not in expected:
            found.append(f"P7: the cause is {cause.source}, not {' or '.join(sorted(expected))}")
        return found

    async def _follow_up(self, agent: Agent, follow_up: Prompt) -> list[str]:
        """P2 and P8: the agent takes the next prompt."""
        try:
            result = await agent.invoke_async(follow_up)
        except Exception as error:
            return [f"P2: the next prompt failed: {type(error).__name__}: {error}"]
        cause = result.receipt.cause
        own = cause is not None and cause.source in self._stage.own_causes
        if result.stop_reason in ("cancelled", "limit") and not own:
            return [f"P8: the next prompt ended as {result.stop_reason}"]
        return [f"P2: after the next prompt: {fault}" for fault in faults(result.messages)]

    def _compare(self, unstopped: Take) -> list[str]:
        """P8 and P7: other runs are untouched, and one that says it finished finished in full."""
        if self._shot is not None and self._shot.source in _THROUGH_CALLER:
            return []  # the caller itself is gone, and with it whatever it would have done next
        found: list[str] = []
        for place, (watched, (reason, text)) in enumerate(zip(self._stage.watched, unstopped.ends, strict=False)):
            result = watched.run.inspect().result
            if result is None:
                continue
            same = result.stop_reason == reason
            if not watched.victim and not same:
                found.append(f"P8: run {place} was not stopped and ended as {result.stop_reason}")
            if same and reason == "end_turn" and result.text != text:
                found.append(f"P7: run {place} says that it finished, with {result.text!r} for {text!r}")
            if not same and result.stop_reason != "cancelled":
                found.append(f"P7: run {place} ended as {result.stop_reason}, neither {reason} nor cancelled")
        return found


def _is_named(task: str, named: set[str]) -> bool:
    """A tool's task is called `quiesce tool NAME ID`, and the receipt calls it `tool NAME (ID)`."""
    return task in named or any(task == f"quiesce {name.replace('(', '').replace(')', '')}" for name in named)
