"""The full-screen chat. Esc stops, and never clears the draft."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress
from typing import ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from ..errors import QuiesceError
from ..interrupts import Answers, Interrupt
from ..receipt import LateOutcome
from .chat_backend import ChatPrompt, ChatRun
from .chat_controller import ChatController
from .chat_draft import attached_files, compose
from .chat_driver import lenient
from .chat_text import (
    WELCOME,
    always_line,
    answer_command,
    begin,
    edited_arguments,
    hint,
    late_line,
    question,
    shown_arguments,
)
from .chat_view import ConversationView
from .chat_widgets import CompletionMenu, Composer, HintLine, Note
from .run_answers import WIDEST
from .sanitize import clean, one_line

# Seconds within which a second Ctrl-C leaves the chat.
_DOUBLE_PRESS: Final = 2.0
_FRAMES_PER_SECOND: Final = 10
# The workers that leaving waits for: a start, a run, an undo or another command.
_WORK: Final = "work"

_STYLE: Final = """
Screen { layout: vertical; background: $background; }
#title { height: 1; padding: 0 1; color: $text-muted; background: $surface; }
#conversation { height: 1fr; padding: 1 2 0 2; scrollbar-size-vertical: 1; }
#below { height: 1; padding: 0 1; color: $text-accent; background: $accent-muted; text-align: center; }
#hint { height: 1; padding: 0 1; }
#hint.rest { color: $text-muted; background: $surface; }
#hint.running { color: $text-primary; background: $primary-muted; }
#hint.stopping { color: $text-warning; background: $warning-muted; }
#menu { height: auto; max-height: 6; margin: 0 2; color: $text-muted; background: $surface; }
#composer { height: auto; min-height: 1; max-height: 8; margin: 0 1; border: round $primary; padding: 0 1; }
.said { color: $text-accent; margin: 0 0 1 0; }
.answer { margin: 0; padding: 0; background: transparent; }
.thinking { color: $text-muted; text-style: italic; margin: 0 0 1 0; padding: 0 0 0 2; }
.tool { padding: 0 0 0 2; margin: 0 0 1 0; }
.nested { height: auto; margin: 0 0 0 2; padding: 0 0 0 1; border-left: solid $surface-lighten-2; }
.nested .tool { margin: 0; }
.note { color: $text-muted; margin: 0 0 1 0; padding: 0 0 0 2; }
.question { color: $text-warning; margin: 0 0 1 0; padding: 0 0 0 2; }
.problem { color: $text-error; margin: 0 0 1 0; padding: 0 0 0 2; }
.receipt { border: round $warning; border-title-color: $text-warning; padding: 0 1; margin: 0 0 1 0;
           width: auto; max-width: 100%; }
.receipt.failed { border: round $error; border-title-color: $text-error; }
"""


class ChatApp(App[None]):
    """The chat on a full screen. `transcript` is what was shown, for the scrollback of the terminal."""

    CSS = _STYLE
    TITLE = "quiesce"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "stop", priority=True),
        Binding("ctrl+c", "interrupt", "stop or leave", priority=True),
        Binding("ctrl+d", "end_of_input", "leave", priority=True),
        Binding("pageup", "page(-1)", "back", priority=True),
        Binding("pagedown", "page(1)", "forth", priority=True),
        Binding("ctrl+end", "page(0)", "to the end", priority=True),
    ]

    def __init__(self, controller: ChatController) -> None:
        super().__init__()
        self.driver_class = lenient(self.driver_class)
        self.transcript = ""
        self._controller: Final = controller
        controller.backend.on_late_outcome = self._on_late
        controller.backend.on_problem = self._on_problem
        self._editing: Interrupt | None = None
        self._last_interrupt = float("-inf")
        self._is_leaving = False
        self._shown_title = ""

    # --- The screen -----------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Title, conversation, hint line, draft."""
        self._title = Static(id="title")
        self._view = ConversationView()
        self._below = Static(id="below")
        self._below.display = False
        self._hint = HintLine(id="hint")
        menu = CompletionMenu()
        self._composer = Composer(menu)
        yield from (self._title, self._view, self._below, self._hint, menu, self._composer)

    def on_mount(self) -> None:
        """Begin."""
        self._view.anchor()
        self._composer.focus()
        self.set_interval(1 / _FRAMES_PER_SECOND, self._tick)
        loop = asyncio.get_running_loop()
        for name in ("SIGTERM", "SIGHUP"):
            with suppress(AttributeError, NotImplementedError):
                loop.add_signal_handler(getattr(signal, name), self._on_signal, name)
        self._tick()
        self.run_worker(self._greet())

    async def _greet(self) -> None:
        """Show the last messages of a saved conversation, or the welcome text; follow a run that is going on."""
        await self._view.add(Note(await begin(self._controller) or WELCOME))
        if self._controller.run is not None:
            self.run_worker(self._follow(self._controller.run), group=_WORK)

    def _tick(self) -> None:
        """Redraw everything that changes with time."""
        if self._controller.tools:
            self._view.redraw_tools(stopping=self._controller.stop_mode is not None)
        self._show_hint()
        new = self._view.new_lines
        self._below.display = new > 0
        if new:
            self._below.update(f"{new} new line{'' if new == 1 else 's'} below · Ctrl-End goes there")

    def _show_hint(self) -> None:
        controller = self._controller
        self._offer_choices()
        state = "rest" if not controller.is_running else "running" if controller.stop_mode is None else "stopping"
        says = "Ctrl-C again leaves · Esc has nothing to stop" if self._leaves_on_next_interrupt() else hint(controller)
        if self._editing is not None:
            says = "Editing the arguments: Enter approves with these · Esc goes back"
        elif live := self._composer.live_choices:
            says = f"{clean(controller.pending_questions[0].tool_name)}: {_CHOICES[live]}"
        self._hint.show(says, self._keys(), state)
        title = ("quiesce", *controller.backend.title, controller.backend.session)
        shown = one_line("  ·  ".join(title), max(20, self.size.width - 2))
        if shown != self._shown_title:
            self._shown_title = shown
            self._title.update(Text(shown))

    def _keys(self) -> tuple[str, ...]:
        """What other keys do, from the longest text to the shortest."""
        controller = self._controller
        queued = f"{len(controller.queue)} queued"
        if self._editing is not None:
            return ()
        if self._composer.is_completing:
            return ("Tab completes · Up and Down choose", "Tab completes")
        if self._composer.live_choices:
            return ("Esc has nothing to stop",)
        if controller.is_running and controller.queue:
            return (f"Enter steers · Tab queues · {queued}", queued)
        if controller.is_running:
            return ("Enter steers · Tab queues",)
        files = len(attached_files(self._composer.text)) if "@" in self._composer.text else 0
        attached = f"{files} file{'' if files == 1 else 's'} attached · " if files else ""
        return (f"{attached}Enter sends · /help · Ctrl-C twice leaves", f"{attached}Enter sends", "/help")

    def _offer_choices(self) -> None:
        """Let one key answer the first question, when nothing runs and the draft is empty."""
        first = next(iter(self._controller.pending_questions), None)
        if first is None or self._controller.is_running or self._editing is not None:
            self._composer.offer("", "")
        else:
            self._composer.offer(first.id, {"approval": "ynea", "limit": "yn"}.get(first.kind, ""))

    # --- What the user does -----------------------------------------------------------------------------------------

    async def on_composer_submitted(self, message: Composer.Submitted) -> None:
        """Enter: a command, edited arguments, a prompt, or a steer of the running run."""
        text = message.text.strip()
        if self._editing is not None:
            await self._approve_edited(text)
        elif text.startswith("/") and not message.text.startswith(" "):
            self._composer.accept()
            self.run_worker(self._command(text), group=_WORK)  # beside the keys: Esc must reach an undo
        elif self._controller.is_running and self._controller.run is None:  # it starts, or an undo is in progress
            await self.on_composer_queued(Composer.Queued(message.text))
        elif text or (self._controller.queue and not self._controller.is_running):
            prompt = await self._prompt(text) if text else self._controller.take_queued()
            if prompt is not None and self._controller.run is not None:
                self.run_worker(self._steer(prompt))
            elif prompt is not None:
                await self._say(prompt)

    async def on_composer_queued(self, message: Composer.Queued) -> None:
        """Tab: queue the prompt until the run has ended."""
        if not message.text.strip():
            return
        if not self._controller.is_running:
            self.notify("Nothing is running: Enter sends it.", timeout=3)
            return
        prompt = await self._prompt(message.text)
        if prompt is not None:
            self._controller.queue.append(prompt)
            await self._view.add(Note(f"queued: {one_line(prompt.shown, 200)}"))
            self._show_hint()

    async def _prompt(self, text: str) -> ChatPrompt | None:
        """The prompt of the draft, which is then empty; None when a file cannot be attached: the draft stays."""
        try:
            prompt = compose(text, self._composer.pasted)
        except QuiesceError as error:
            await self._view.add(Note(str(error), "problem"))
            return None
        self._composer.accept()
        return prompt

    async def on_composer_decided(self, message: Composer.Decided) -> None:
        """One key for the first question: y, n, e or a."""
        first = next(iter(self._controller.pending_questions), None)
        if first is None:
            return
        if message.key == "e":
            self._editing = first
            self._composer.text = shown_arguments(first)
            self._composer.move_cursor(self._composer.document.end)
            self._show_hint()
        else:
            command = {"y": "/approve", "n": "/deny", "a": "/always"}[message.key]
            self.run_worker(self._command(command), group=_WORK)

    async def _approve_edited(self, text: str) -> None:
        try:
            self._controller.answer(edited_arguments(text))
        except QuiesceError as error:
            await self._view.add(Note(str(error), "problem"))
            return
        self._end_editing()
        await self._view.add(Note(f"Approved with these arguments: {one_line(text, WIDEST)}"))
        await self._go_on_with_answers()

    def _end_editing(self) -> None:
        self._editing = None
        self._composer.text = ""

    def action_stop(self) -> None:
        """Esc: stop, each time more urgently. The draft stays as it is; only edited arguments are put away."""
        if self._editing is not None:
            self._end_editing()
        else:
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
        if not self._controller.is_running and not self._composer.text:
            self._leave()

    def action_page(self, direction: int) -> None:
        """Scroll the conversation while the draft keeps the focus; 0 goes to its end."""
        if direction == 0:
            self._view.anchor()
        else:
            (self._view.scroll_page_up if direction < 0 else self._view.scroll_page_down)(animate=False)

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
        self._controller.stop(why)
        while working := [each for each in self.workers if each.group == _WORK and not each.is_finished]:
            await asyncio.gather(*(each.wait() for each in working), return_exceptions=True)
        await self._controller.backend.close()
        self.transcript = self._view.transcript
        self.exit(return_code=code)

    async def _command(self, line: str) -> None:
        answer = await answer_command(self._controller, line)
        if answer is None:
            self._leave()
            return
        await self._view.add(Note(f"{line}\n{answer}"))
        await self._go_on_with_answers()

    async def _go_on_with_answers(self) -> None:
        answers = self._controller.complete_answers()
        if answers is not None:
            self._begin(answers)
        self._show_hint()

    def _on_late(self, outcome: LateOutcome) -> None:
        if self.is_running:
            self.run_worker(self._view.add(Note(late_line(outcome))))
            self._show_hint()

    def _on_problem(self, text: str) -> None:
        if self.is_running:
            self.run_worker(self._view.add(Note(clean(text), "problem")))

    # --- A run ------------------------------------------------------------------------------------------------------

    async def _steer(self, prompt: ChatPrompt) -> None:
        if await self._controller.steer(prompt):
            await self._view.add_prompt(prompt.shown, "steers")
        else:
            await self._view.add(Note(f"queued: {one_line(prompt.shown, 200)}"))
        self._show_hint()

    async def _say(self, prompt: ChatPrompt) -> None:
        """Start a run. Its events are followed beside the keys."""
        await self._view.add_prompt(prompt.shown)
        self._begin(prompt)

    def _begin(self, prompt: ChatPrompt | Answers) -> None:
        if self._is_leaving:
            return
        self._controller.starting = True  # from now on Enter queues
        self.run_worker(self._start(prompt), group=_WORK)
        self._show_hint()

    async def _start(self, prompt: ChatPrompt | Answers) -> None:
        try:
            run = await self._controller.say(prompt)
        except QuiesceError as error:
            await self._view.add(Note(str(error), "problem"))
            return
        await self._follow(run)

    async def _follow(self, run: ChatRun) -> None:
        try:
            async for event in run.events():
                self._controller.on_event(event)
                await self._view.show(event)
        except QuiesceError as error:
            await self._view.add(Note(str(error), "problem"))
        following = await self._controller.wait_for_end()
        for approved in self._controller.answer_always():
            await self._view.add(Note(always_line(approved)))
        if self._controller.pending_questions:
            await self._view.add(Note(question(self._controller), "question"))
        await self._go_on_with_answers()
        if following is not None and not self._is_leaving:
            await self._say(following)


_CHOICES: Final = {
    "ynea": "y approves, n denies, e edits, a approves always",
    "yn": "y goes on, n ends the run",
}
