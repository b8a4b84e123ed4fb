"""The chat without a full screen: line by line. Ctrl-C stops."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

from ..errors import QuiesceError
from ..events import Event, ModelCallWaiting, RetryScheduled, RunEnded, StopRequested, TextDelta, ToolEnded, ToolStarted
from ..interrupts import Answers
from .chat_controller import ChatController
from .chat_text import answer_command, begin, hint, late_line, question
from .sanitize import call_line, clean, one_line, result_line

_SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
# Seconds within which a second Ctrl-C leaves the chat.
_DOUBLE_PRESS: Final = 2.0


class PlainChat:
    """A chat on standard input and output. A line typed during a run steers it; lines from a pipe wait for its end."""

    def __init__(self, controller: ChatController) -> None:
        self._controller: Final = controller
        controller.on_late_outcome = lambda outcome: self._print(f"  {late_line(outcome)}")
        self._is_terminal: Final = sys.stdin.isatty()
        self._line_is_open = False
        self._last_interrupt = float("-inf")
        self._leaving: asyncio.Event = asyncio.Event()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._code = 0

    def run(self) -> int:
        """Chat until the input ends or the user leaves; returns the exit code."""
        asyncio.run(self._chat())
        return self._code

    async def _chat(self) -> None:
        with _signals(self._on_signal):
            _read_lines(asyncio.get_running_loop(), self._lines)
            self._print(
                f"{self._controller.agent.name}, {self._controller.agent.config.model.name}. /help; Ctrl-C stops."
            )
            greeting = await begin(self._controller)
            if greeting:
                self._print(greeting)
            listening = asyncio.create_task(self._listen())
            leaving = asyncio.create_task(self._leaving.wait())
            await asyncio.wait((listening, leaving), return_when=asyncio.FIRST_COMPLETED)
            for task in (listening, leaving):
                task.cancel()
            await asyncio.gather(listening, leaving, return_exceptions=True)
            if not listening.cancelled() and (error := listening.exception()) is not None:
                raise error

    async def _listen(self) -> None:
        """Handle one line after the other; the run is a task beside this."""
        running: asyncio.Task[None] | None = None
        try:
            while True:
                if running is not None and running.done():
                    running.result()
                    running = None
                if running is None:
                    self._prompt()
                line = await self._next_line(running)
                if line is None and running is None:
                    return
                if line is None:
                    await self._finish(running)
                    continue
                running = await self._run_line(line, running)
        finally:
            if running is not None:
                self._controller.stop("The chat is left")
                await running

    async def _next_line(self, running: asyncio.Task[None] | None) -> str | None:
        """The next line; None when the run has ended, or there is no more input."""
        if not self._is_terminal and running is not None:
            await asyncio.wait((running,))  # from a pipe, each line is a prompt of its own
            running.result()
        getting = asyncio.create_task(self._lines.get())
        try:
            await asyncio.wait(
                (getting,) if running is None or running.done() else (getting, running),
                return_when=asyncio.FIRST_COMPLETED,
            )
            return getting.result() if getting.done() else ""
        finally:
            getting.cancel()

    async def _finish(self, running: asyncio.Task[None] | None) -> None:
        """Let the run end after the end of the input."""
        if running is not None:
            await asyncio.wait((running,))
        self._lines.put_nowait(None)

    async def _run_line(self, line: str, running: asyncio.Task[None] | None) -> asyncio.Task[None] | None:
        text = line.strip()
        is_running = running is not None and not running.done()
        if line.startswith("/"):
            answer = await answer_command(self._controller, text)
            if answer is None:
                self._leaving.set()
            else:
                self._print(answer)
            answers = self._controller.complete_answers()
            return running if answers is None else asyncio.create_task(self._say(answers))
        if is_running:
            if text:
                self._controller.steer(text)
            return running
        if not text and self._controller.queue:
            text = self._controller.queue.popleft()
        return asyncio.create_task(self._say(text)) if text else None

    # --- A run ----------------------------------------------------------------------------------------------------

    async def _say(self, prompt: str | Answers) -> None:
        following: str | Answers | None = prompt
        while following is not None:
            try:
                run = self._controller.say(following)
            except QuiesceError as error:
                self._print(f"! {clean(str(error))}")
                return
            async for event in run:
                self._controller.on_event(event)
                self._show(event)
            following = await self._controller.wait_for_end()
            if self._controller.pending_questions:
                self._print(question(self._controller))

    def _show(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                sys.stdout.write(clean(text))
                sys.stdout.flush()
                self._line_is_open = not text.endswith("\n")
            case ToolStarted(call):
                self._print(f"  > {call_line(call.name, call.arguments)}")
            case ToolEnded(result):
                self._print(f"  {result_line(result)}")
            case RetryScheduled(attempt, delay, error):
                self._print(f"  ! try {attempt} failed ({one_line(error, 80)}); again in {delay:.1f} s")
            case ModelCallWaiting(_, _, reason):
                self._print(f"  ! waiting for {one_line(reason, 80)}")
            case StopRequested(cause) if cause.source != "user":
                self._print(f"  {hint(self._controller, 'Ctrl-C')}")
            case RunEnded(reason, receipt, error):
                self._end_line()
                if error is not None:
                    self._print(f"! {clean(error)}")
                if receipt.cause is not None or reason == "error":
                    self._print(clean(str(receipt)))
            case _:
                pass

    # --- Signals ----------------------------------------------------------------------------------------------------

    def _on_signal(self, number: int) -> None:
        if number != signal.SIGINT:
            self._code = 128 + number
            self._leaving.set()
        elif self._controller.is_running:
            self._controller.stop("Ctrl-C")
            self._print(f"  {hint(self._controller, 'Ctrl-C')}")
        else:
            now = asyncio.get_running_loop().time()
            if now - self._last_interrupt < _DOUBLE_PRESS:
                self._leaving.set()
            else:
                self._last_interrupt = now
                self._print("\nCtrl-C again leaves.")

    # --- Writing ----------------------------------------------------------------------------------------------------

    def _prompt(self) -> None:
        self._end_line()
        if self._is_terminal:
            sys.stdout.write("> ")
            sys.stdout.flush()

    def _print(self, text: str) -> None:
        self._end_line()
        print(text, flush=True)

    def _end_line(self) -> None:
        if self._line_is_open:
            self._line_is_open = False
            print(flush=True)


@contextmanager
def _signals(on_signal: Any) -> Generator[None]:
    """Call `on_signal` in the loop for each signal while the block runs."""
    loop = asyncio.get_running_loop()

    def handler(number: int, _: FrameType | None) -> None:
        loop.call_soon_threadsafe(on_signal, number)

    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _read_lines(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[str | None]) -> None:
    """Read standard input in a thread, which a file, a pipe and a terminal all allow, and which may wait for ever.

    It reads with os.read: a thread that sits in sys.stdin's own lock would keep the interpreter from ending.
    """

    def put(line: str | None) -> None:
        with suppress(RuntimeError):  # the chat is over
            loop.call_soon_threadsafe(lines.put_nowait, line)

    def read() -> None:
        rest = b""
        try:
            while data := os.read(0, 65536):
                *whole, rest = (rest + data).split(b"\n")
                for line in whole:
                    put(line.decode(errors="replace"))
        except OSError:  # the terminal is gone
            pass
        if rest:
            put(rest.decode(errors="replace"))
        put(None)

    threading.Thread(target=read, name="quiesce-chat-input", daemon=True).start()
