"""The handle of a run: how callers look at it, stop it, steer it, wait for it and read its events."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Final, Generic, Never, Self, TypeVar

from .._threads.loop_callback import made_again
from .._threads.loop_end import watch_loop
from .._threads.tasks import start_task
from ..cancellation import Cause, Mode, ModeName, Source, StopScope, TokenView
from ..cancellation.cause import parse_mode
from ..cancellation.raised import ENDS_PROGRAM, EndedElsewhere, is_own_error
from ..conversation.conversation import Conversation
from ..conversation.validity import user_message
from ..errors import ConfigurationError, InterruptError, NothingToContinue, RunError
from ..events import Event
from ..interrupts import Answers, Interrupt
from ..messages import Message, Prompt
from ..phases import Phase
from ..receipt import Receipt
from ..result import OutT, RunResult
from ..tools.current_run import current_run
from ..usage.ledger import Ledger
from ..usage.live import LiveUsage
from .ending import broken_end
from .events.answers import PartialOutputs, TextStream
from .events.fanout import Reader
from .family import ChildRun
from .inspection import RunInspection
from .loop import run_phases
from .lost_loop import end_with_loop, leave_to_parent_process
from .pending_answers import open_interrupts, take_answers
from .settle import settle, settle_at_once
from .state import RunState
from .steer import steer_aside
from .waiting import end_with_caller, outcome, owned_outcome, raise_failure, wait_in_thread

_T = TypeVar("_T")


class Run(Generic[OutT]):
    """A run that has been started. Its methods are safe from any thread, except for reading events.

    Await it for the result: when the task that awaits is cancelled, the run is stopped. Iterate over it for its events,
    in the loop it was started in. As an async context manager it does not outlive the block: leaving early is a stop
    (cause: `disconnect`).
    """

    __slots__ = ("__weakref__", "_deadline", "_is_mine", "_leave_loop", "_on_end", "_state", "_task")

    def __init__(self, state: RunState, *, timeout: float | None, on_end: Callable[[RunState], None]) -> None:
        self._state: Final = state
        self._on_end: Final = on_end
        self._is_mine = True
        loop = state.progress.loop
        expire = made_again(self.deadline_passed)
        self._deadline: Final = None if timeout is None else loop.call_later(timeout, expire, timeout)
        self._leave_loop: Final = watch_loop(loop, on_close=self._on_loop_closed, on_fork=self._on_fork)
        parent = state.family.parent
        if parent is not None:
            parent.state.family.children.append(ChildRun(self, state))
        self._task: Final = start_task(self._live(), name=_task_name(state), loop=loop)
        self._task.add_done_callback(self._on_task_end)

    # --- Looking ------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The run's id."""
        return self._state.run_id

    @property
    def done(self) -> bool:
        """Whether the run is at rest."""
        return self._state.progress.at_rest.done()

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

    def inspect(self) -> RunInspection:
        """What the run is doing in this instant. From any thread."""
        state, progress = self._state, self._state.progress
        return RunInspection(
            phase=progress.phase,
            turn=progress.turn_number,
            attempt=progress.attempt,
            cause=self.cause,
            mode=self.mode,
            config=state.config,
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
        handles: list[Any] = [child.handle for child in self._state.family.living]
        return tuple(handles)

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
        if self._state.progress.at_rest.done():
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
        return not self._state.progress.at_rest.done() and self._state.tools.cancel_call(call_id, reason)

    def deadline_passed(self, timeout: float) -> None:
        """What the timer of `timeout=` calls."""
        self._state.token.cancel(f"{timeout:g} s have passed", source="deadline")

    # --- Answers while it is busy -------------------------------------------------------------------------------

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """What calls of the current turn ask a person while the others run; `agent.answer()` answers. Any thread."""
        return open_interrupts(self._state)

    def take_answers(self, answers: Answers) -> bool:
        """Give the run answers to its `interrupts`; whether it takes them. For `agent.answer()`, in the run's loop."""
        return take_answers(self._state, answers)

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
        return not self._state.progress.at_rest.done()

    def resume(self) -> bool:
        """Go on after `pause()`. Not for answering a person's questions: that is `agent.answer()`."""
        self._state.progress.pause.resume()
        return not self._state.progress.at_rest.done()

    @property
    def paused(self) -> bool:
        """Whether the run waits, or will wait, before its next step."""
        return self._state.progress.pause.wanted and not self._state.progress.at_rest.done()

    # --- Waiting ------------------------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, RunResult[OutT]]:
        """Wait for the result. Raises the `RunError` of a run that failed; its `result` holds what was kept.

        Being cancelled here stops the run (cause: `caller`), as it does in `invoke_async`: the run settles, and then
        the cancellation goes on. A handle whose prompt steered a run of another caller does not stop that run.
        """
        return self._result().__await__()

    async def _result(self) -> RunResult[OutT]:
        try:
            return raise_failure(await (owned_outcome(self._state) if self._is_mine else outcome(self._state)))
        except ENDS_PROGRAM as error:
            if self._is_mine:
                self._state.stop_because(error)
            raise

    async def stopped(self) -> Receipt:
        """Wait until the run is at rest; returns the receipt. Being cancelled here does not stop the run.

        Never raises the run's failure. After it, `await run` returns the result, or raises the failure, at once.
        """
        return (await outcome(self._state)).receipt

    def wait(self, timeout: float | None = None) -> RunResult[OutT]:
        """Block this thread until the run has ended. Not in the run's own loop.

        Raises `TimeoutError` when it has not ended by then, and the `RunError` of a run that failed. Any other
        exception that is raised in this thread meanwhile, such as Ctrl-C or the time limit of a task queue, stops the
        run and goes on when it is at rest; each further one is more urgent. A run of another caller, which this
        handle's prompt steered, is stopped by Ctrl-C alone.
        """
        return raise_failure(wait_in_thread(self._state, timeout, owned=self._is_mine))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other._state is self._state  # pyright: ignore[reportUnknownMemberType]

    def __hash__(self) -> int:
        return hash(self.id)

    # --- Reading ------------------------------------------------------------------------------------------------

    def events(self, *, history: bool = True) -> Reader:
        """A reader of the events from the first one to the last, however late it comes. The run waits for a slow one.

        What happened before comes with adjacent deltas joined. The run keeps 10,000 such events and a million
        characters of text; a reader that is too late for the oldest gets an `EventsDropped` first. `history=False`
        begins with what happens from now on. A reader is for one task. Raises `ConfigurationError` in any other event
        loop than the run's.
        """
        if asyncio.get_running_loop() is not self._state.progress.loop:
            raise ConfigurationError(
                "Events can be read only in the event loop that the run was started in.",
                kept="The run goes on.",
                todo="In code without a loop, read them with agent.stream().",
            )
        return self._state.events.reader(history=history)

    def __aiter__(self) -> Reader:
        return self.events()

    def text_stream(self) -> TextStream:
        """The text of the answers, from the first word on, as an async iterator that ends with the run.

        Raises the `RunError` of a run that failed. Leaving it, or being cancelled in it, does not stop the run.
        """
        return TextStream(self._state, self.events())

    def partial_output(self) -> PartialOutputs[OutT]:
        """The structured output while it is written: an async iterator of objects, the last of which is the output.

        A pydantic model has the fields that were written so far; other types come as soon as what is there is valid.
        Raises like `text_stream()`, and `ConfigurationError` for a run without an `output_type`.
        """
        return PartialOutputs(self._state, self.events())

    def tap(self, function: Callable[[Event], None]) -> Callable[[], None]:
        """Call `function` with each event, in the run's loop, as it happens. Returns a function that removes it."""
        return self._state.events.tap(function)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.done and self._is_mine:
            outside = isinstance(error, asyncio.CancelledError)
            if not self._state.progress.ended:
                self.cancel("its block was left", source="caller" if outside else "disconnect")
            if await end_with_caller(self._state) and not outside:
                raise asyncio.CancelledError

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
        except (RunError, InterruptError, NothingToContinue) as error:
            state.progress.error = error
        except EndedElsewhere as ended:
            state.stop_because(ended.error)
        except BaseException as error:
            if isinstance(error, ENDS_PROGRAM):
                await self._settle_and_raise(error)
            if not is_own_error(error):
                raise
            state.progress.error = RunError(f"The run failed: {type(error).__name__}: {error}.")
            state.progress.error.__cause__ = error
        await settle(state)
        self._come_to_rest(lambda: None)  # here: it is not certain that the loop goes on
        if state.shield.interrupted:
            raise asyncio.CancelledError

    async def _settle_and_raise(self, error: BaseException) -> Never:
        """What ends the program was raised in this task, such as Ctrl-C without a handler: it is raised at rest."""
        self._state.stop_because(error)
        self._state.foreign_tasks.abandon_awaited()
        await settle(self._state)
        self._come_to_rest(lambda: None)
        raise error

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        """The task comes to rest by itself. Not one that was cancelled before it began, or that a Ctrl-C broke."""
        error = None if task.cancelled() else task.exception()
        if not self.done or isinstance(error, ENDS_PROGRAM):
            self._come_to_rest(lambda: self._end_anyway(error))

    def _on_loop_closed(self) -> None:
        self._come_to_rest(lambda: end_with_loop(self._state, self._task))

    def _on_fork(self) -> None:
        leave_to_parent_process(self._state)
        self._on_end(self._state)

    def _come_to_rest(self, settle_now: Callable[[], None]) -> None:
        """The run has ended: wake what waits for it. One that has not settled does so now, in one step.

        Called again after a Ctrl-C in the middle of it, this does what is missing.
        """
        self._leave_loop()
        if self._deadline is not None:
            self._deadline.cancel()
        try:
            if not self._state.progress.ended or not self._state.events.closed:
                settle_now()
            self._on_end(self._state)  # first, so that a waiter finds no active run
        except Exception as error:  # a bug of ours: waiters get it rather than wait for ever
            self._state.claim.conversation.release(self.id)
            self._state.events.close(broken_end(self._state, error))
            self._on_end(self._state)
            self._state.progress.at_rest.set_exception(error)
        else:
            result = self._state.result
            assert result is not None
            self._state.let_go()
            self._state.progress.at_rest.set_result(result)

    def _end_anyway(self, error: BaseException | None) -> None:
        """The task was cancelled before its first step, or is broken: the run must come to rest all the same."""
        if isinstance(error, Exception):
            self._state.progress.error = error
        elif error is not None:
            self._state.stop_because(error)
        else:
            self._state.token.cancel("The task was cancelled before it began", source="caller")
        for batch in self._state.tools.batches:
            batch.abandon()
        settle_at_once(self._state)


def give_up_start(state: RunState, error: BaseException) -> None:
    """A run could not be started, or the caller gets no handle of it, because of an exception such as Ctrl-C.

    Its task, if it has one, never begins. The conversation is sealed and released in one step.
    """
    conversation = state.claim.conversation
    if state.run_id not in (conversation.holder, *conversation.queued):
        return
    for task in asyncio.all_tasks(state.progress.loop):
        if task.get_name() == _task_name(state):
            task.cancel()
    if isinstance(error, Exception):
        state.progress.error = error
    else:
        state.stop_because(error)
    settle_at_once(state)


def _task_name(state: RunState) -> str:
    return f"quiesce run {state.run_id}"


def joined(run: Run[_T]) -> Run[_T]:
    """A handle for a prompt that steered this run of another caller: waiting on it, or leaving it, does not stop it."""
    twin = copy.copy(run)
    twin._is_mine = False  # pyright: ignore[reportPrivateUsage]
    return twin


# --- For Quiesce's other modules ------------------------------------------------------------------------------------


def state_of(run: Run[Any]) -> RunState:
    """The state of a run, for the modules of this room. Others use `Run.inspect()`."""
    return run._state  # pyright: ignore[reportPrivateUsage]


async def wait_for(run: Run[_T]) -> RunResult[_T]:
    """Wait until the run is at rest. Never raises its failure: that is in `error`. Being cancelled does not stop it."""
    return await outcome(state_of(run))


async def wait_shielded(run: Run[Any]) -> None:
    """Wait until the run is at rest although the caller is being cancelled. The caller re-raises the cancellation."""
    await end_with_caller(state_of(run))


def wait_blocking(run: Run[_T]) -> RunResult[_T]:
    """Block this thread until the run is at rest; see `Run.wait`. Never raises the run's failure."""
    return wait_in_thread(state_of(run))
