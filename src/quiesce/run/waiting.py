"""Waiting for the end of a run: in a task, or in a thread, where an exception may be raised meanwhile.

`Run` offers three ways to wait. The others, for Quiesce's own modules, are here.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any, Final, TypeVar

import anyio

from .._threads.background_loop import running_loop
from ..cancellation import BoundedShield, Mode
from ..errors import ConfigurationError, RunError
from ..result import RunResult
from .state import RunState

_T = TypeVar("_T")

# Settling takes no longer than the graces of the tools; these seconds are added for a slow machine.
_SLACK: Final = 30.0


async def outcome(state: RunState) -> RunResult[Any]:
    """Wait until the run is at rest. Never raises its failure: that is in `error`. Being cancelled does not stop it."""
    return await state.progress.at_rest.future()


async def owned_outcome(state: RunState) -> RunResult[Any]:
    """`outcome`, for the owner of the run: being cancelled here stops it (cause: `caller`), and it settles first."""
    try:
        return await outcome(state)
    except asyncio.CancelledError:
        if not state.progress.at_rest.done():
            state.token.cancel("The task that waited was cancelled", source="caller")
        await end_with_caller(state)
        raise


async def end_with_caller(state: RunState) -> bool:
    """Wait for the end although the caller is being cancelled. The caller re-raises the cancellation.

    Whether it was cancelled, or cancelled again, while it waited here.
    """
    if state.progress.at_rest.done():
        return False
    shield = BoundedShield(f"caller of run {state.run_id}")
    with anyio.CancelScope(shield=True):
        await shield.wait((state.progress.at_rest.future(),), seconds=_SLACK + _longest_grace(state))
    return shield.interrupted


def wait_in_thread(state: RunState, timeout: float | None = None, *, owned: bool = True) -> RunResult[Any]:
    """Block this thread until the run is at rest. Never raises the run's failure.

    An exception in this thread meanwhile stops the run, if the thread owns it or the exception is Ctrl-C. Raises
    `TimeoutError`, and `ConfigurationError` in the run's own loop or for what is no time.
    """
    at_rest = state.progress.at_rest
    if not isinstance(timeout, int | float | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"timeout={timeout!r} makes no sense.", kept="The run goes on.", todo="Use a number of seconds, or None."
        )
    try:
        in_own_loop = running_loop() is state.progress.loop
        ended = not in_own_loop and at_rest.wait(timeout)
    except BaseException as error:
        if not owned and not isinstance(error, KeyboardInterrupt):
            raise
        raise end_with_thread(state, error)  # noqa: B904  # most often this one itself
    if in_own_loop:
        raise ConfigurationError(
            "Run.wait() in the run's own loop would wait for ever.", kept="The run goes on.", todo="Use await."
        )
    return at_rest.result(None if ended else 0)


def end_with_thread(state: RunState, error: BaseException) -> BaseException:
    """Stop because an exception was raised in the thread that waits, and wait for the rest. Returns what to raise.

    A second exception meanwhile is a `kill`, a third ends the wait. The first one is raised, unless a later one is
    graver: a Ctrl-C after a time limit.
    """
    raised = error
    for mode, grace in ((Mode.NOW, _longest_grace(state)), (Mode.KILL, 0.0)):
        try:
            _cancel_in_loop(state, error, mode)
            state.progress.at_rest.wait(_SLACK + grace)
            break
        except BaseException as further:
            error, raised = further, graver(raised, further)
    return raised


def _cancel_in_loop(state: RunState, error: BaseException, mode: Mode) -> None:
    """Cancel the run from its own loop, where a second signal cannot interrupt the cancel."""
    cancel = functools.partial(
        _cancel, state, f"{type(error).__name__} in the thread that waited", mode=mode, source="caller"
    )
    if isinstance(error, KeyboardInterrupt):
        reason = "Ctrl-C" if mode is Mode.NOW else "Ctrl-C again"
        cancel = functools.partial(_cancel, state, reason, mode=mode, source="signal")
    try:
        state.progress.loop.call_soon_threadsafe(cancel)
    except RuntimeError:  # it has closed
        cancel()


def _cancel(state: RunState, reason: str, **how: Any) -> None:
    if not state.progress.at_rest.done():
        state.token.cancel(reason, **how)


def _longest_grace(state: RunState) -> float:
    return max((tool.policy.grace for tool in state.config.tools.values()), default=0.0)


def graver(first: BaseException, second: BaseException) -> BaseException:
    """Which of two exceptions in the thread that waits is raised: the first, or a Ctrl-C after a time limit."""
    return second if isinstance(first, Exception) and not isinstance(second, Exception) else first


def raise_failure(result: RunResult[_T]) -> RunResult[_T]:
    """The result of a run that did not fail. Raises the error of one that did, with the result in it."""
    if result.error is None:
        return result
    if isinstance(result.error, RunError):
        result.error.result = result
    raise result.error
