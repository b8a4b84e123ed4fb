"""`Trial`: runs a scenario once, with one injected stop or none, and checks the promises afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from msgspec import Struct, field

from ..agent import AnyAgent
from ..conversation.validity import faults
from ..errors import StoreError
from ..messages import Prompt
from .injector import CAUSES, Injection, Injector, LoopLeft
from .invariants import grace_now, late_end, violations
from .scenario import Harness, WatchedRun
from .virtual_time import Stuck, VirtualLoop, run_virtual

Scenario: TypeAlias = Callable[[Harness], Awaitable[object]]

_WAITING_MODES: Final = ("after_turn", "after_tools", "escalate")
_THROUGH_CALLER: Final = ("task", "twice", "ctrl_c")
# A Ctrl-C in the handle comes to the caller before it waits for the run, which may not learn of it.
_HANDLE: Final = "run/handle.py"
# Where something else breaks first, the run may have failed before the stop came.
_MAY_FAIL: Final = ("reset_then_stop", "store_failure_then_stop", "stop_and_store_failure", "late_timers_then_stop")


class TrialResult(Struct):
    """The number of points of a trial, the broken promises, and the stop reason and text of each run.

    `distinct` are the points that come first or last in their line of source; `place` is the line of an injected stop.
    `stopped` says whether the stop was made: a run may end before its point.
    """

    points: int
    faults: list[str]
    ends: list[tuple[str, str]]
    distinct: list[int] = field(default_factory=list)
    place: str = ""
    stopped: bool = False


class Trial:
    """A harness with an injector on a virtual loop."""

    def __init__(self, injection: Injection | None, kind: str, *, eager: bool = False) -> None:
        self._injection: Final = injection
        self._source: Final = "" if injection is None else injection.source
        self._loop: Final = VirtualLoop()
        self._heard: Final[list[str]] = []
        self._loop.set_exception_handler(lambda _, context: self._heard.append(str(context.get("message"))))
        if eager:
            factory: Any = getattr(asyncio, "eager_task_factory")  # noqa: B009  (new in Python 3.12)
            self._loop.set_task_factory(factory)
        self._harness: Final = Harness()
        self._injector: Final = Injector(self._loop, self._harness, injection, count=kind)
        self._injector.on_inject = self._on_inject
        self._injector.after_step = self._after_step
        self._allowance = 0.0
        self._run_knows = False
        self._faults: Final[list[str]] = []

    def run(self, scenario: Scenario, follow_up: Prompt | None, unstopped: TrialResult | None) -> TrialResult:
        """Run the scenario to its end and check every promise. `unstopped` is the result without a stop."""
        if self._source == "close":
            self._run_and_close(scenario, follow_up)
        else:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                raised = self._run_scenario(runner, scenario)
                self._faults.extend(self._check_raised(raised))
                if not self._faults:
                    self._faults.extend(self._check_after_the_end(runner, follow_up))
                if not self._faults and unstopped is not None:
                    self._faults.extend(self._compare(unstopped))
                self._close_harness()
            self._faults.extend(f"P5: the loop's exception handler heard: {word}" for word in self._heard)
        results = (watched.run.inspect().result for watched in self._harness.watched)
        ends = [(result.stop_reason, result.text) for result in results if result is not None]
        distinct = sorted({point for points in self._injector.lines.values() for point in points})
        return TrialResult(
            self._injector.points,
            self._faults,
            [(str(reason), text) for reason, text in ends],
            distinct,
            self._injector.place,
            self._injector.injected_at is not None,
        )

    # --- While it runs -----------------------------------------------------------------------------------------

    def _on_inject(self, target: WatchedRun) -> None:
        mode = "kill" if self._injection is not None and self._injection.source == "kill" else "now"
        self._allowance = grace_now(target, mode, self._harness.extra_time)

    def _after_step(self, target: WatchedRun) -> None:
        injected = self._injector.injected_at is not None
        if self._injection is None or injected:
            self._faults.extend(f"P2: while running: {fault}" for fault in faults(target.run.messages))
            self._faults.extend(
                f"P2: the settled part: {fault}" for fault in faults(target.agent.conversation.sealed())
            )
        if injected and not self._run_knows:
            # A cancellation of the task reaches the run some steps later; a tool that starts in between has its grace.
            self._on_inject(target)
            self._run_knows = target.run.token.cancelled

    async def _main(self, scenario: Scenario) -> None:
        self._harness.caller = asyncio.current_task()
        await scenario(self._harness)
        for watched in self._harness.watched:
            await watched.run.stopped()

    def _run_scenario(self, runner: asyncio.Runner, scenario: Scenario) -> BaseException | None:
        self._injector.install()
        try:
            runner.run(self._main(scenario))
        except Stuck as stuck:
            self._faults.append(f"P1: {stuck}")
        except KeyboardInterrupt as interrupt:
            if self._source != "ctrl_c":
                raise
            return interrupt
        except (Exception, asyncio.CancelledError) as error:
            return error
        finally:
            self._injector.uninstall()
        return None

    def _run_and_close(self, scenario: Scenario, follow_up: Prompt | None) -> None:
        """Run the scenario up to the chosen point, close the loop there, and go on in another one."""
        self._injector.install()
        try:
            self._loop.run_until_complete(self._main(scenario))
        except LoopLeft:
            pass
        finally:
            self._injector.uninstall()
            self._loop.close()
        target = self._harness.target
        for watched in self._harness.watched:
            self._faults.extend(violations(watched))
        if target is not None and not self._faults:
            self._faults.extend(f"P2: the settled part: {fault}" for fault in faults(target.agent.messages))
            if follow_up is not None:
                self._faults.extend(run_virtual(self._follow_up(target.agent, follow_up)))
        self._close_harness()

    def _close_harness(self) -> None:
        """Let the scenario check its own promises and clean up."""
        try:
            self._harness.close()
        except AssertionError as error:
            self._faults.append(str(error))

    # --- When it has ended --------------------------------------------------------------------------------------

    def _check_raised(self, raised: BaseException | None) -> list[str]:
        """P7: a cancellation of the caller is raised, a stop of the run is not, and nothing else is raised."""
        cancelled = isinstance(raised, asyncio.CancelledError)
        if self._source == "ctrl_c" and self._injector.injected_at is not None:
            return [] if isinstance(raised, KeyboardInterrupt) else [f"P7: Ctrl-C was swallowed; {raised!r} came"]
        if isinstance(raised, StoreError) and self._source in _MAY_FAIL:
            return []
        if raised is not None and not cancelled:
            return [f"P7: the scenario raised {type(raised).__name__}: {raised}"]
        source = "" if self._injection is None or self._injector.injected_at is None else self._injection.source
        if source == "task" and not cancelled:
            return ["P7: the cancellation of the caller was swallowed"]
        if cancelled and source not in _THROUGH_CALLER:
            return ["P7: a cancellation leaked into the caller"]
        return []

    def _check_after_the_end(self, runner: asyncio.Runner, follow_up: Prompt | None) -> list[str]:
        async def main() -> list[str]:
            found: list[str] = []
            if self._source == "ctrl_c" and self._harness.caller is not None:
                await asyncio.wait({self._harness.caller})  # as in a notebook, where the loop goes on
            for watched in self._harness.watched:
                await asyncio.wait_for(watched.run.stopped(), 1000)
                found += violations(watched)
            await asyncio.sleep(0)
            found += self._check_tasks()
            target = self._harness.target
            if target is not None:
                found += self._check_target(target)
                if follow_up is not None and not found:
                    found += await self._follow_up(target.agent, follow_up)
            return found

        try:
            return runner.run(main())
        except (Stuck, TimeoutError) as error:
            return [f"P1: a run never ended: {error}"]

    def _check_tasks(self) -> list[str]:
        """P5: no task is left except those that a receipt names."""
        left = {task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()}
        results = (watched.run.inspect().result for watched in self._harness.watched)
        named = {name for result in results if result is not None for name in result.receipt.still_running}
        return [f"P5: task {name!r} is left" for name in left if not _is_named(name, named)]

    def _check_target(self, target: WatchedRun) -> list[str]:
        """P1 and P7: the target ended in time, with the right cause."""
        injection, harness, result = self._injection, self._harness, target.run.inspect().result
        if injection is None or self._injector.injected_at is None or result is None:
            return []
        found: list[str] = []
        cause = result.receipt.cause
        unheard = self._injector.place.startswith(_HANDLE) and cause is not None and cause.source != "signal"
        if not unheard and not (harness.own_causes and injection.source in _WAITING_MODES):
            found += late_end(target, self._injector.injected_at, self._allowance)
        expected = {CAUSES.get(injection.source, "user"), *harness.own_causes}
        if cause is not None and cause.source not in expected:
            found.append(f"P7: the cause is {cause.source}, not {' or '.join(sorted(expected))}")
        return found

    async def _follow_up(self, agent: AnyAgent, follow_up: Prompt) -> list[str]:
        """P2 and P8: the agent answers the next prompt."""
        try:
            result = await agent.invoke_async(follow_up)
        except Exception as error:
            return [f"P2: the next prompt failed: {type(error).__name__}: {error}"]
        cause = result.receipt.cause
        own = cause is not None and cause.source in self._harness.own_causes
        if result.stop_reason in ("cancelled", "limit") and not own:
            return [f"P8: the next prompt ended as {result.stop_reason}"]
        return [f"P2: after the next prompt: {fault}" for fault in faults(result.messages)]

    def _compare(self, unstopped: TrialResult) -> list[str]:
        """P8 and P7: the other runs end as without the stop, and so does a target that reports `end_turn`."""
        if self._source in _THROUGH_CALLER:
            return []  # the caller was cancelled, so what it would have started next is missing
        found: list[str] = []
        for position, (watched, (reason, text)) in enumerate(zip(self._harness.watched, unstopped.ends, strict=False)):
            result = watched.run.inspect().result
            if result is None:
                continue
            same = result.stop_reason == reason
            if not watched.target and not same:
                found.append(f"P8: run {position} was not stopped and ended as {result.stop_reason}")
            if same and reason == "end_turn" and result.text != text:
                found.append(f"P7: run {position} says that it finished, with {result.text!r} for {text!r}")
            may_fail = result.stop_reason == "error" and self._source in _MAY_FAIL
            if not same and result.stop_reason != "cancelled" and not may_fail:
                found.append(f"P7: run {position} ended as {result.stop_reason}, neither {reason} nor cancelled")
        return found


def _is_named(task: str, named: set[str]) -> bool:
    """A tool's task is called `quiesce tool NAME ID`, and the receipt calls it `tool NAME (ID)`."""
    return task in named or any(task == f"quiesce {name.replace('(', '').replace(')', '')}" for name in named)
