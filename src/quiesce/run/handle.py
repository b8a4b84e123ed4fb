"""The handle of a run: how callers look at it, stop it, steer it, wait for it and read its events."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import anyio

from .._background_loop import running_loop
from .._latch import Latch
from ..cancellation import BoundedShield, Cause, Mode, ModeName, Source, StopScope, TokenView
from ..cancellation.cause import parse_mode
from ..conversation.validity import user_message
from ..errors import ConfigurationError, RunError
from ..events import Event
from ..messages import Message, Prompt
from ..phases import Phase
from ..receipt import Receipt
from ..result import OutT, RunResult
from ..sessions import Conversation
from ..tools.current_run import current_run
from ..usage.ledger import Ledger
from ..usage.live import LiveUsage
from .events.fanout import Reader
from .inspection import RunInspection
from .loop import run_phases
from .settle import settle, settle_at_once
from .state import RunState
from .steer import steer_aside

_T = TypeVar("_T")

# Settling is bounded by the graces of the tools; this is for the machine to be slow in.
_SLACK: Final = 30.0


class Run(Generic[OutT]):
    """A run that has been started. Its methods are safe from any thread, except for reading events.

    Await it, or `result()`, for the result. Iterate over it for its events, in the loop it was started in. As an async
    context manager it does not outlive the block: leaving early is a stop (cause: `disconnect`).
    """

    def __init__(self, state: RunState, *, timeout: float | None, on_end: Callable[[RunState], None]) -> None:
        self._state: Final = state
        self._on_end: Final = on_end
        self._ended: Final[Latch[RunResult[OutT]]] = Latch()
        loop = state.progress.loop
        self._deadline: Final = None if timeout is None else loop.call_later(timeout, self.deadline_passed, timeout)
        self._task: Final = loop.create_task(self._live(), name=f"quiesce run {state.run_id}")
        self._task.add_done_callback(self._on_task_end)
        parent = state.family.parent
        if parent is not None:
            parent.state.family.children.append(self)

    # --- Looking ------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The run's id."""
        return self._state.run_id

    @property
    def done(self) -> bool:
        """Whether the run is at rest."""
        return self._ended.done()

    @property
    def phase(self) -> Phase:
        """What the run is doing right now."""
        return self._state.progress.phase

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as it would be if the run ended in this instant: always valid."""
        return self._state.turn.messages

    @property
    def usage(self) -> LiveUsage:
        """What the run has used so far, the answer that is being written included."""
        return LiveUsage(self.ledger, self._state.spending.usage)

    @property
    def token(self) -> TokenView:
        """The run's token, to look at and to wait for. `cancel()` is the way to stop the run."""
        return TokenView(self._state.token)

    @property
    def cause(self) -> Cause | None:
        """Why the run was asked to stop, if it was."""
        return self._state.token.cause

    @property
    def mode(self) -> Mode | None:
        """How urgently the run was asked to stop, if it was."""
        return self._state.token.mode

    @property
    def conversation(self) -> Conversation:
        """The conversation that the run writes to, or waits for."""
        return self._state.claim.conversation

    @property
    def state(self) -> RunState:
        """The state of the run: for the modules of `quiesce.run`, in the run's own loop. Others use `inspect()`."""
        return self._state

    def inspect(self) -> RunInspection:
        """What the run is doing in this instant. From any thread."""
        state, progress = self._state, self._state.progress
        return RunInspection(
            phase=progress.phase,
            turn=progress.turn_number,
            attempt=progress.attempt,
            cause=self.cause,
            mode=self.mode,
            continued_text=state.claim.continued_text,
            result=state.result,
        )

    @property
    def ledger(self) -> Ledger:
        """The record of the run's model calls."""
        return self._state.spending.bill.ledger

    @property
    def children(self) -> tuple[Run[Any], ...]:
        """The runs that this run's tools have started and that have not ended. Each can be stopped alone."""
        living: list[Any] = [child for child in self._state.family.living if isinstance(child, Run)]
        return tuple(living)

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.phase.value}>"

    # --- Stopping -----------------------------------------------------------------------------------------------

    def cancel(
        self, reason: str = "", *, mode: ModeName | Mode = Mode.NOW, source: Source = "user", undo: bool | None = None
    ) -> bool:
        """Ask the run to stop. Returns at once, whether or not this changed anything; a run that has ended stays ended.

        From any thread, task or signal handler, any number of times; a later call can only make the stop more urgent.
        `undo=True` also takes back what the run's completed calls did, before the run ends (see `@tool.undo`);
        `undo=False` withdraws that, and stops an undo that is under way, as does a stop that becomes `kill`.
        Raises `UnknownMode` for a mode that does not exist; the stop is then made in mode `now`.
        """
        if self._ended.done():
            return False
        if undo is not None:
            self._state.tools.undo_wanted = undo
        if undo is False:
            self._state.tools.undo_token.cancel(reason or "undo=False", source=source)
        return self._state.token.cancel(reason, mode=mode, source=source)

    def cancel_tool(self, call_id: str, reason: str = "") -> bool:
        """Stop one tool call, by its policy, and let the run go on: the call's result says that it was stopped.

        Returns at once; False when no such call is waiting or running. From any thread or task. A call that ends in the
        same instant keeps its result.
        """
        return not self._ended.done() and self._state.tools.cancel_call(call_id, reason)

    def deadline_passed(self, timeout: float) -> None:
        """What the timer of `timeout=` calls."""
        self._state.token.cancel(f"{timeout:g} s have passed", source="deadline")

    # --- Prompts while it is busy -------------------------------------------------------------------------------

    def steer(self, prompt: Prompt, *, mode: ModeName | Mode = Mode.NOW) -> bool:
        """Stop the current work, send this prompt, and go on in the same run. Returns at once, from any thread.

        Text that was streamed stays, marked as cut; tools that run are stopped by their policy, as `mode` has it (see
        `Mode`). False when it is too late: the run has ended or is about to, and the prompt was not accepted. Each
        accepted prompt is either sent to the model or returned in `RunResult.unsent`, never both.

        Raises `InvalidPrompt` or `UnknownMode`; the prompt was not accepted then.
        """
        message, wanted = user_message(prompt), parse_mode(mode)
        if not self._state.prompts.inbox.put(message, urgent=True):
            return False
        self._state.steer_soon(wanted)
        return True

    def enqueue(self, prompt: Prompt) -> bool:
        """Send this prompt when the current turn has ended, tools included. Returns at once, from any thread.

        False when it is too late; `RunResult.unsent` as for `steer`. Raises `InvalidPrompt`.
        """
        return self._state.prompts.inbox.put(user_message(prompt), urgent=False)

    def pause(self) -> bool:
        """Wait before the next step (a model call, or a turn's tools) until `resume()`. From any thread.

        The model call or the tools that run go on to their end. A stop ends the pause at once; deadlines go on. False
        when the run has ended.
        """
        self._state.progress.pause.pause()
        return not self._ended.done()

    def resume(self) -> bool:
        """Go on after `pause()`. Not for answering a person's questions: that is `agent.resume()`."""
        self._state.progress.pause.resume()
        return not self._ended.done()

    @property
    def paused(self) -> bool:
        """Whether the run waits, or will wait, before its next step."""
        return self._state.progress.pause.wanted and not self._ended.done()

    # --- Waiting ------------------------------------------------------------------------------------------------

    async def result(self) -> RunResult[OutT]:
        """Wait for the run to end. Raises the `RunError` of a run that failed; its `result` holds what was kept.

        Being cancelled here does not stop the run.
        """
        return _raise_failure(await self.at_rest())

    async def outcome(self) -> RunResult[OutT]:
        """Wait for the run to end, like `result()`, and never raise its failure: that is in `error` then."""
        return await self.at_rest()

    async def stopped(self) -> Receipt:
        """Wait until the run is at rest; returns the receipt. Does not stop the run, and never raises its failure."""
        return (await self.at_rest()).receipt

    def wait(self, timeout: float | None = None) -> RunResult[OutT]:
        """Block this thread until the run has ended. Not in the run's own loop.

        Raises `TimeoutError` when it has not ended by then, and the `RunError` of a run that failed. Any other
        exception that is raised in this thread meanwhile, such as Ctrl-C or the time limit of a task queue, stops the
        run and goes on when it is at rest; each further one is more urgent.
        """
        return _raise_failure(self._wait_with_interrupts(timeout))

    def wait_joined(self) -> RunResult[OutT]:
        """`wait()` for a thread whose prompt steered a run of another caller: an exception leaves that run running."""
        return _raise_failure(self._ended.result())

    def wait_for_rest(self) -> Receipt:
        """Block this thread until the run is at rest; returns the receipt. Never raises the run's failure."""
        return self._wait_with_interrupts(None).receipt

    def _wait_with_interrupts(self, timeout: float | None) -> RunResult[OutT]:
        try:
            in_own_loop = running_loop() is self._state.progress.loop
            ended = not in_own_loop and self._ended.wait(timeout)
        except BaseException as error:
            raise self.end_with_thread(error)  # noqa: B904  # most often this one itself
        if in_own_loop:
            raise ConfigurationError("Run.wait() in the run's own loop would wait for ever.", todo="Use await.")
        return self._ended.result(None if ended else 0)

    def end_with_thread(self, error: BaseException) -> BaseException:
        """Stop because an exception was raised in the thread that waits, and wait for the rest. Returns what to raise.

        A second exception meanwhile is a `kill`, a third ends the wait. The first one is raised, unless a later one is
        graver: a Ctrl-C after a time limit.
        """
        raised = error
        for mode, grace in ((Mode.NOW, self._longest_grace()), (Mode.KILL, 0.0)):
            try:
                self._cancel_in_loop(error, mode)
                self._ended.wait(_SLACK + grace)
                break
            except BaseException as further:
                error, raised = further, graver(raised, further)
        return raised

    def _cancel_in_loop(self, error: BaseException, mode: Mode) -> None:
        """`cancel()` where no signal handler raises: in the middle of it, one more would keep the stop from the run."""
        cancel = functools.partial(self.cancel, f"{type(error).__name__} in the thread that waited", source="caller")
        if isinstance(error, KeyboardInterrupt):
            cancel = functools.partial(self.cancel, "Ctrl-C" if mode is Mode.NOW else "Ctrl-C again", source="signal")
        try:
            self._state.progress.loop.call_soon_threadsafe(functools.partial(cancel, mode=mode))
        except RuntimeError:  # it has closed
            cancel(mode=mode)

    def __await__(self) -> Generator[Any, None, RunResult[OutT]]:
        return self.result().__await__()

    async def owned(self) -> RunResult[OutT]:
        """Wait for the result as the owner of the run: being cancelled here stops it.

        The run settles (cause: `task`), and then the cancellation goes on. Raises what `result()` raises.
        """
        try:
            return await self.result()
        except asyncio.CancelledError:
            self.cancel("The task that waited was cancelled", source="caller")
            await self.end_with_caller()
            raise

    def at_rest(self) -> asyncio.Future[RunResult[OutT]]:
        """A future that is done when the run is at rest, to wait for several. Cancelling it does nothing."""
        return self._ended.future()

    async def end_with_caller(self) -> None:
        """Wait for the end although the caller is being cancelled. The caller re-raises the cancellation."""
        shield = BoundedShield(f"caller of run {self.id}")
        with anyio.CancelScope(shield=True):
            await shield.wait((self.at_rest(),), seconds=_SLACK + self._longest_grace())

    def _longest_grace(self) -> float:
        return max((tool.policy.grace for tool in self._state.config.tools.values()), default=0.0)

    # --- Reading ------------------------------------------------------------------------------------------------

    def events(self) -> Reader:
        """A reader of the events from now on, the last one included. The run waits for a reader that is slow.

        Raises `ConfigurationError` in any other event loop than the run's.
        """
        if asyncio.get_running_loop() is not self._state.progress.loop:
            raise ConfigurationError("Events can be read only in the event loop that the run was started in.")
        return self._state.events.reader()

    def __aiter__(self) -> Reader:
        return self.events()

    def tap(self, function: Callable[[Event], None]) -> Callable[[], None]:
        """Call `function` with each event, in the run's loop, as it happens. Returns the way to take it off again."""
        return self._state.events.tap(function)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.done:
            outside = isinstance(error, asyncio.CancelledError)
            self.cancel("its block was left", source="caller" if outside else "disconnect")
            await self.end_with_caller()

    # --- Living -------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """The run's one task: run the phases, settle, and pass on an outside cancellation when all is at rest."""
        state = self._state
        current_run.set(state)
        try:
            going_on = True
            while going_on:
                with StopScope(state.progress.work_token) as state.progress.scope:
                    await run_phases(state)
                state.progress.scope = None
                going_on = await steer_aside(state)
        except asyncio.CancelledError:
            state.shield.interrupted = True
            state.token.cancel("The task was cancelled from outside", source="caller")
        except RunError as error:
            state.progress.error = error
        except Exception as error:
            state.progress.error = RunError(f"The run failed: {type(error).__name__}: {error}.")
            state.progress.error.__cause__ = error
        await settle(state)
        if state.shield.interrupted:
            raise asyncio.CancelledError

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        try:
            if self._state.progress.phase is not Phase.ENDED:
                self._end_anyway(None if task.cancelled() else task.exception())
            self._on_end(self._state)  # first, so that a waiter finds no active run
        except Exception as error:  # a bug of ours: waiters get it rather than wait for ever
            self._state.claim.conversation.release(self.id)
            self._on_end(self._state)
            self._ended.set_exception(error)
        else:
            result = self._state.result
            assert result is not None
            self._ended.set_result(result)

    def _end_anyway(self, error: BaseException | None) -> None:
        """The task was cancelled before its first step, or is broken: the run must come to rest all the same."""
        if isinstance(error, Exception):
            self._state.progress.error = error
        else:
            self._state.token.cancel("The task was cancelled before it began", source="caller")
        settle_at_once(self._state)


def graver(first: BaseException, second: BaseException) -> BaseException:
    """Which of two exceptions in the thread that waits is raised: the first, or a Ctrl-C after a time limit."""
    return second if isinstance(first, Exception) and not isinstance(second, Exception) else first


def _raise_failure(result: RunResult[_T]) -> RunResult[_T]:
    if result.error is None:
        return result
    if isinstance(result.error, RunError):
        result.error.result = result
    raise result.error
