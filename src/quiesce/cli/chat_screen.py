"""The full-screen chat. Esc stops, and never clears the draft."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress
from typing import Any, ClassVar, Final, TypeVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from .. import events
from ..errors import QuiesceError
from ..interrupts import Answers
from ..messages import ToolCall
from ..receipt import LateOutcome
from .chat_controller import ChatController
from .chat_driver import lenient
from .chat_text import ENDINGS, WELCOME, answer_command, begin, hint, late_line, question
from .chat_widgets import Answer, Composer, HintLine, Note, Thinking, ToolLine, UserPrompt
from .sanitize import one_line

# Seconds within which a second Ctrl-C leaves the chat.
_DOUBLE_PRESS: Final = 2.0
_FRAMES_PER_SECOND: Final = 10
_Writing = TypeVar("_Writing", Answer, Thinking)

_STYLE: Final = """
Screen { layout: vertical; background: $background; }
#title { height: 1; padding: 0 1; color: $text-muted; background: $surface; }
#conversation { height: 1fr; padding: 1 2 0 2; scrollbar-size-vertical: 1; }
#hint { height: 1; padding: 0 1; }
#hint.rest { color: $text-muted; background: $surface; }
#hint.running { color: $text-primary; background: $primary-muted; }
#hint.stopping { color: $text-warning; background: $warning-muted; }
#composer { height: auto; min-height: 1; max-height: 8; margin: 0 1; border: round $primary; padding: 0 1; }
.said { color: $text-accent; margin: 0 0 1 0; }
.answer { margin: 0; padding: 0; background: transparent; }
.thinking { color: $text-muted; text-style: italic; margin: 0 0 1 0; padding: 0 0 0 2; }
.tool { padding: 0 0 0 2; margin: 0 0 1 0; }
.note { color: $text-muted; margin: 0 0 1 0; padding: 0 0 0 2; }
.question { color: $text-warning; margin: 0 0 1 0; padding: 0 0 0 2; }
.problem { color: $text-error; margin: 0 0 1 0; padding: 0 0 0 2; }
.receipt { border: round $warning; border-title-color: $text-warning; padding: 0 1; margin: 0 0 1 0;
           width: auto; max-width: 100%; }
.receipt.failed { border: round $error; border-title-color: $text-error; }
"""


class ChatApp(App[None]):
    """The chat on a full screen."""

    CSS = _STYLE
    TITLE = "quiesce"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "stop", priority=True),
        Binding("ctrl+c", "interrupt", "stop or leave", priority=True),
        Binding("ctrl+d", "end_of_input", "leave", priority=True),
        Binding("pageup", "page(-1)", "back", priority=True),
        Binding("pagedown", "page(1)", "forth", priority=True),
    ]

    def __init__(self, controller: ChatController) -> None:
        super().__init__()
        self.driver_class = lenient(self.driver_class)
        self._controller: Final = controller
        controller.on_late_outcome = self._on_late
        self._tools: Final[dict[str, ToolLine]] = {}
        self._writing: Answer | Thinking | None = None
        self._last_interrupt = float("-inf")
        self._is_leaving = False

    # --- The screen -----------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Title, conversation, hint line, draft."""
        yield Static(id="title")
        yield VerticalScroll(id="conversation", can_focus=False)
        yield HintLine(id="hint")
        yield Composer()

    def on_mount(self) -> None:
        """Begin."""
        self.query_one("#conversation").anchor()
        self.query_one(Composer).focus()
        self.set_interval(1 / _FRAMES_PER_SECOND, self._tick)
        loop = asyncio.get_running_loop()
        for name in ("SIGTERM", "SIGHUP"):
            with suppress(AttributeError, NotImplementedError):
                loop.add_signal_handler(getattr(signal, name), self._on_signal, name)
        self._tick()
        self.run_worker(self._greet())

    async def _greet(self) -> None:
        """Show the last messages of a saved conversation, or the welcome text."""
        await self._add(Note(await begin(self._controller) or WELCOME))

    def _tick(self) -> None:
        """Redraw everything that changes with time."""
        controller = self._controller
        for call_id in controller.tools:
            line = self._tools.get(call_id)
            if line is not None:
                line.is_stopping = controller.stop_mode is not None
                line.redraw()
        self._show_hint()

    def _show_hint(self) -> None:
        controller = self._controller
        state = "rest" if not controller.is_running else "running" if controller.stop_mode is None else "stopping"
        queued = f"{len(controller.queue)} queued"
        if not controller.is_running:
            keys = ("Enter sends · /help · Ctrl-C twice leaves", "Enter sends · /help", "/help")
        elif controller.queue:
            keys = (f"Enter steers · Tab queues · {queued}", queued)
        else:
            keys = ("Enter steers · Tab queues",)
        says = "Ctrl-C again leaves · Esc has nothing to stop" if self._leaves_on_next_interrupt() else hint(controller)
        self.query_one(HintLine).show(says, keys, state)
        title = ("quiesce", controller.agent.name, controller.agent.config.model.name, controller.sessions.name)
        self.query_one("#title", Static).update(Text(one_line("  ·  ".join(title), max(20, self.size.width - 2))))

    async def _add(self, widget: Widget) -> None:
        conversation = self.query_one("#conversation")
        if conversation.is_attached:  # it is not when the application is leaving: nothing more is shown
            await conversation.mount(widget)

    # --- What the user does -----------------------------------------------------------------------------------------

    async def on_composer_submitted(self, message: Composer.Submitted) -> None:
        """Enter: a command, a prompt, or a steer of the running run."""
        text = message.text.strip()
        if text.startswith("/") and not message.text.startswith(" "):
            self.query_one(Composer).accept()
            self.run_worker(self._command(text))  # beside the keys: Esc must reach an undo
        elif self._controller.undoing is not None:
            await self.on_composer_queued(Composer.Queued(message.text))
        elif self._controller.run is not None:
            if text:
                self.query_one(Composer).accept()
                await self._steer(text)
        elif text or self._controller.queue:
            if text:
                self.query_one(Composer).accept()
            await self._say(text or self._controller.queue.popleft())

    async def on_composer_queued(self, message: Composer.Queued) -> None:
        """Tab: queue the prompt until the run has ended."""
        text = message.text.strip()
        if not text:
            return
        if not self._controller.is_running:
            self.notify("Nothing is running: Enter sends it.", timeout=3)
            return
        self.query_one(Composer).accept()
        self._controller.queue.append(text)
        await self._add(Note(f"queued: {one_line(text, 200)}"))
        self._show_hint()

    def action_stop(self) -> None:
        """Esc: stop, each time more urgently. The draft stays as it is."""
        self._controller.stop("Esc")
        self._show_hint()

    def action_interrupt(self) -> None:
        """Ctrl-C: the same while something runs; twice at rest, leave."""
        if self._controller.is_running:
            self._controller.stop("Ctrl-C")
        elif self._leaves_on_next_interrupt():
            self._leave()
        else:
            self._last_interrupt = time.monotonic()
        self._show_hint()

    def action_end_of_input(self) -> None:
        """Ctrl-D: leave, with an empty draft and at rest."""
        if not self._controller.is_running and not self.query_one(Composer).text:
            self._leave()

    def action_page(self, direction: int) -> None:
        """Scroll the conversation while the draft keeps the focus."""
        pane = self.query_one("#conversation")
        (pane.scroll_page_up if direction < 0 else pane.scroll_page_down)(animate=False)

    async def action_quit(self) -> None:
        """Ctrl-Q."""
        self._leave()

    def _leaves_on_next_interrupt(self) -> bool:
        return not self._controller.is_running and time.monotonic() - self._last_interrupt < _DOUBLE_PRESS

    def _on_signal(self, name: str) -> None:
        self._leave(name, 128 + getattr(signal, name))

    def _leave(self, why: str = "The chat is left", code: int = 0) -> None:
        """Leave when all is at rest. A second call stops the run more urgently."""
        if self._is_leaving:
            self._controller.stop(why)
        else:
            self._is_leaving = True
            self.run_worker(self._leave_at_rest(why, code))

    async def _leave_at_rest(self, why: str, code: int) -> None:
        run = self._controller.run
        if run is not None:
            self._controller.stop(why)
            await run.stopped()
        self.exit(return_code=code)

    async def _command(self, line: str) -> None:
        answer = await answer_command(self._controller, line)
        if answer is None:
            self._leave()
            return
        await self._add(Note(f"{line}\n{answer}"))
        answers = self._controller.complete_answers()
        if answers is not None:
            self._begin(answers)
        self._show_hint()

    def _on_late(self, outcome: LateOutcome) -> None:
        if self.is_running:
            self.run_worker(self._add(Note(late_line(outcome))))
            self._show_hint()

    # --- A run ------------------------------------------------------------------------------------------------------

    async def _steer(self, text: str) -> None:
        is_steering = self._controller.steer(text)
        await self._settle_writing()
        await self._add(UserPrompt(text, "steers") if is_steering else Note(f"queued: {one_line(text, 200)}"))
        self._show_hint()

    async def _say(self, text: str) -> None:
        """Start a run. Its events are followed beside the keys."""
        await self._add(UserPrompt(text))
        self._begin(text)

    def _begin(self, prompt: str | Answers) -> None:
        try:
            run = self._controller.say(prompt)
        except QuiesceError as error:
            self.run_worker(self._add(Note(str(error), "problem")))
            return
        self.run_worker(self._follow(run.events()))
        self._show_hint()

    async def _follow(self, stream: Any) -> None:
        async for event in stream:
            self._controller.on_event(event)
            await self._show(event)
        following = await self._controller.wait_for_end()
        if self._controller.pending_questions:
            await self._add(Note(question(self._controller), "question"))
        self._show_hint()
        if following is not None and not self._is_leaving:
            await self._say(following)

    async def _show(self, event: events.Event) -> None:
        match event:
            case events.TextDelta(text):
                await (await self._write(Answer)).add(text)
            case events.ReasoningDelta(text) if text:
                (await self._write(Thinking)).add(text)
            case events.ProviderPartDelta(_, kind):
                await self._settle_writing()
                await self._add(Note(f"[{kind}]"))
            case events.ModelCallStarted():
                await self._settle_writing()
            case events.ToolStarted(call):
                await self._begin_tool(call)
            case events.ToolProgress(call_id, _, progress) if call_id in self._tools:
                self._tools[call_id].report(progress)
            case events.ToolEnded(result):
                if result.call_id not in self._tools:
                    await self._begin_tool(ToolCall(result.call_id, result.name, {}))
                self._tools.pop(result.call_id).finish(result)
            case events.StopRequested():
                self._show_hint()
            case events.RunEnded():
                await self._end(event)
            case _:
                await self._show_trouble(event)

    async def _show_trouble(self, event: events.Event) -> None:
        match event:
            case events.RetryScheduled(attempt, delay, error):
                what = f"Try {attempt} failed: {one_line(error, 200)} Again in {delay:.1f} s."
            case events.ModelCallWaiting(_, _, reason):
                what = f"The model call waits for {one_line(reason, 200)}."
            case events.OutputRejected(error):
                what = f"The answer did not fit: {one_line(error, 200)}"
            case events.HookFailed(name, _, error):
                what = f"The hook {name} failed: {one_line(error, 200)}"
            case _:
                return
        await self._add(Note(what, "problem"))

    async def _write(self, kind: type[_Writing]) -> _Writing:
        """The widget for text of this kind: the current one, or a new one."""
        if not isinstance(self._writing, kind):
            await self._settle_writing()
            self._writing = kind()
            await self._add(self._writing)
        return self._writing

    async def _settle_writing(self) -> None:
        writing, self._writing = self._writing, None
        if isinstance(writing, Answer):
            await writing.finish()

    async def _begin_tool(self, call: ToolCall) -> None:
        await self._settle_writing()
        line = self._tools[call.id] = ToolLine(call)
        await self._add(line)
        line.redraw()

    async def _end(self, event: events.RunEnded) -> None:
        await self._settle_writing()
        if event.error is not None:
            await self._add(Note(event.error, "problem"))
        receipt = event.receipt
        if receipt.cause is None and event.stop_reason != "error":
            used = receipt.usage
            word = ENDINGS.get(event.stop_reason, event.stop_reason)
            await self._add(Note(f"{word} · {used.input} in, {used.output} out"))
            return
        card = Note(str(receipt), "receipt")
        card.border_title = "Stopped" if receipt.cause is not None else "Failed"
        card.set_class(receipt.cause is None, "failed")
        await self._add(card)
