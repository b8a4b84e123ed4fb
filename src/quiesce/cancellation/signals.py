"""Ctrl-C and SIGTERM as stops, each one more urgent than the last.

The first signal is graceful: the model is cut, because what it wrote is kept and can be
continued, and tools that already run finish, because half of a side effect is worse than none. It does not wait for the
end of the answer: a person who presses Ctrl-C, and a supervisor that counts down to SIGKILL, want to see it end.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any, Final, Protocol, Self

from ..errors import ConfigurationError
from .cause import Mode, ModeName, Source, parse_mode
from .signal_thread import SignalThread

LADDER: Final = (Mode.AFTER_TOOLS, Mode.NOW, Mode.KILL)
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stoppable(Protocol):
    """What can be stopped: a token, a run, an agent. `cancel` may be called in a signal handler and in any thread."""

    def cancel(self, reason: str = "", *, mode: ModeName | Mode = Mode.NOW, source: Source = "user") -> object:
        """Ask for a stop; returns at once."""


class SignalStop:
    """What `stop_on_signals` returns: a context manager for the main thread."""

    def __init__(self, target: Stoppable, signals: Sequence[signal.Signals], modes: Sequence[Mode]) -> None:
        self._target: Final = target
        self._signals: Final = signals
        self._modes: Final = modes
        self._previous: Final[dict[signal.Signals, Any]] = {}
        self._thread: SignalThread | None = None
        self._handled = 0
        self._claims: Final[dict[int, str]] = {}
        self.received: Final[list[signal.Signals]] = []
        """The signals that came, in order. A program that ends because of one exits with 128 plus its number."""

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            raise ConfigurationError(
                "Signals can only be handled in the main thread, and this is another one.",
                todo="Use stop_on_signals in the main thread; it can stop runs that live in any thread.",
            )
        try:
            for each in self._signals:
                self._install(each)
            self._thread = SignalThread(self._previous, self._on_unhandled)
            self._thread.start()
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _install(self, number: signal.Signals) -> None:
        if signal.getsignal(number) == signal.SIG_IGN:  # as under nohup: the parent process wants it so
            return
        # signal.signal, and not loop.add_signal_handler, serves every case: the token may be cancelled in a signal
        # handler, and wakes the loop itself. So it matters neither whether a loop runs here nor which one.
        self._previous[number] = signal.signal(number, self._on_signal)

    def _restore(self) -> None:
        if self._thread is not None:
            self._thread.end()
        for number, handler in self._previous.items():
            # None stands for a handler that was not set from Python and cannot be put back from here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous.clear()

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._handled += 1
        if not self._claim(self._handled, "handler"):
            return
        if self._handled <= len(self._modes):
            self._stop(self._handled, signal.Signals(number))
        else:
            self.received.append(signal.Signals(number))
            self._give_way(signal.Signals(number))

    def _on_unhandled(self, nth: int, number: int) -> None:
        """In the thread of signals. A signal after the last mode is not for it: the handler from before needs the main
        thread."""
        if nth <= len(self._modes) and self._claim(nth, "thread"):
            self._stop(nth, signal.Signals(number))

    def _claim(self, nth: int, side: str) -> bool:
        """Whether the n-th signal is this side's. It takes no lock: the handler may interrupt any line."""
        return self._claims.setdefault(nth, side) == side

    def _stop(self, nth: int, number: signal.Signals) -> None:
        self.received.append(number)
        self._target.cancel(number.name, mode=self._modes[nth - 1], source="signal")

    def _give_way(self, number: signal.Signals) -> None:
        """Everything was asked for already, and the program still runs: the handler that was there before gets it."""
        handler = self._previous.pop(number, None)
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.raise_signal(number)


def stop_on_signals(
    target: Stoppable, *, signals: Sequence[signal.Signals] = SIGNALS, modes: Sequence[str] = LADDER
) -> SignalStop:
    """Stop a token, a run or an agent on SIGINT (Ctrl-C) and SIGTERM while the block runs.

        with stop_on_signals(run):
            result = run.wait()

    The n-th signal of the block stops in the n-th of `modes`: first the model is cut and running tools finish, then
    each tool gets only its grace, then none at all. A signal after the last of them goes to the handler that was there
    before (for Ctrl-C, usually a `KeyboardInterrupt`), so a program that hangs can still be ended. The cause's source
    is `signal` and its reason the signal's name. The block works with and without a running event loop, and puts the
    previous handlers back. Signals that the process ignores stay ignored. A handler that was set with
    `loop.add_signal_handler` is not replaced: the loop still calls it as well. While the main thread waits inside
    C code and runs no handler, a thread of the block stops the target in its place, 0.2 s later.

    Raises `ConfigurationError` outside the main thread, when the block is entered, and for an empty list of modes;
    `UnknownMode` for a mode that does not exist.
    """
    for given in (signals, modes):
        if not isinstance(given, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"stop_on_signals got {given!r}.", todo="Use lists for signals and modes.")
    if not modes:
        raise ConfigurationError(
            "stop_on_signals needs at least one mode.", todo=f"Leave it out for {', '.join(LADDER)}."
        )
    return SignalStop(target, tuple(signals), tuple(parse_mode(mode) for mode in modes))
