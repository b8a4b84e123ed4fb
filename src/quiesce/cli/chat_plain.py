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
from ..events import (
    ChildEvent,
    Event,
    ModelCallWaiting,
    RetryScheduled,
    RunEnded,
    StopRequested,
    TextDelta,
    ToolEnded,
    ToolStarted,
)
from ..interrupts import Answers
from ..messages import Text
from .chat_backend import ChatPrompt, ChatRun
from .chat_controller import ChatController
from .chat_draft import compose
from .chat_text import (
    always_line,
    answer_command,
    begin,
    hint,
    late_line,
    question,
    shown_arguments,
)
from .sanitize import call_line, clean, one_line, result_line

_SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
# Seconds within which a second Ctrl-C leaves the chat.
_DOUBLE_PRESS: Final = 2.0
_LIMIT_KEYS: Final = {"y": "/approve", "n": "/deny"}
_APPROVAL_KEYS: Final = {**_LIMIT_KEYS, "a": "/always"}


class PlainChat:
    """A chat on standard input and output. A line typed during a run steers it; lines from a pipe wait for its end."""

    def __init__(self, controller: ChatController) -> None:
        self._controller: Final = controller
        controller.backend.on_late_outcome = lambda outcome: self._print(f"  {late_line(outcome)}")
        controller.backend.on_problem = lambda text: self._print(f"! {clean(text)}")
        self._is_terminal: Final = sys.stdin.isatty()
        self._line_is_open = False
        self._is_editing = False
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
            greeting = await begin(self._controller)
            self._print(clean(f"{', '.join(self._controller.backend.title)}. /help; Ctrl-C stops."))
            if greeting:
                self._print(greeting)
            listening = asyncio.create_task(self._listen())
            leaving = asyncio.create_task(self._leaving.wait())
            await asyncio.wait((listening, leaving), return_when=asyncio.FIRST_COMPLETED)
            for task in (listening, leaving):
                task.cancel()
            await asyncio.gather(listening, leaving, return_exceptions=True)
            await self._controller.backend.close()
            if not listening.cancelled() and (error := listening.exception()) is not None:
                raise error

    async def _listen(self) -> None:
        """Handle one line after the other; the run is a task beside this."""
        run = self._controller.run
        running = None if run is None else asyncio.create_task(self._follow_all(run))
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
        """Wait for the run to end; the input has ended already."""
        if running is not None:
            await asyncio.wait((running,))
        self._lines.put_nowait(None)

    async def _run_line(self, line: str, running: asyncio.Task[None] | None) -> asyncio.Task[None] | None:
        is_running = running is not None and not running.done()
        if not is_running and self._controller.pending_questions:
            line = self._answer_line(line)
        if line.startswith("/"):
            answer = await answer_command(self._controller, line.strip())
            if answer is None:
                self._leaving.set()
            else:
                self._print(answer)
            answers = self._controller.complete_answers()
            return running if answers is None else asyncio.create_task(self._say(answers))
        text = line.strip()
        try:
            prompt = self._prompt_of(text) if text else None
        except QuiesceError as error:
            self._print(f"! {clean(str(error))}")
            return running
        if is_running:
            if prompt is not None:
                await self._controller.steer(prompt)
            return running
        if prompt is None and self._controller.queue:
            prompt = self._controller.take_queued()
        return asyncio.create_task(self._say(prompt)) if prompt is not None else None

    def _prompt_of(self, text: str) -> ChatPrompt:
        """The prompt of a line. Only a person at a terminal attaches files: a line of a pipe may be anybody's."""
        return compose(text) if self._is_terminal else ChatPrompt(text, (Text(text),))

    def _answer_line(self, line: str) -> str:
        """The command that a line stands for while a question waits: y, n, a, e, or arguments after e."""
        first, said = self._controller.pending_questions[0], line.strip().lower()
        if self._is_editing:
            self._is_editing = False
            return f"/edit {line}"
        if first.kind == "approval" and said == "e":
            self._is_editing = True
            self._print(f"{shown_arguments(first)}\nThe arguments as JSON, on one line:")
            return ""
        keys = {"approval": _APPROVAL_KEYS, "limit": _LIMIT_KEYS}.get(first.kind, {})
        return keys.get(said, line)

    # --- A run ----------------------------------------------------------------------------------------------------

    async def _say(self, prompt: ChatPrompt | Answers) -> None:
        try:
            run = await self._controller.say(prompt)
        except QuiesceError as error:
            self._print(f"! {clean(str(error))}")
            return
        await self._follow_all(run)

    async def _follow_all(self, run: ChatRun) -> None:
        """Show a run, and those that follow: with answers that are always given, and of queued prompts."""
        following: ChatPrompt | Answers | None = None
        while True:
            try:
                async for event in run.events():
                    self._controller.on_event(event)
                    self._show(event)
            except QuiesceError as error:
                self._print(f"! {clean(str(error))}")
            following = await self._controller.wait_for_end()
            for approved in self._controller.answer_always():
                self._print(always_line(approved))
            if self._controller.pending_questions:
                self._print(question(self._controller))
            following = self._controller.complete_answers() or following
            if following is None:
                return
            try:
                run = await self._controller.say(following)
            except QuiesceError as error:
                self._print(f"! {clean(str(error))}")
                return

    def _show(self, event: Event, indent: str = "  ") -> None:
        match event:
            case TextDelta(text):
                sys.stdout.write(clean(text))
                sys.stdout.flush()
                self._line_is_open = not text.endswith("\n")
            case ToolStarted(call):
                self._print(f"{indent}> {call_line(call.name, call.arguments)}")
            case ToolEnded(result):
                self._print(f"{indent}{result_line(result)}")
            case ChildEvent(_, _, ToolStarted() | ToolEnded() | ChildEvent() as inner):  # the tools of a sub-agent
                self._show(inner, f"{indent}  ")
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
