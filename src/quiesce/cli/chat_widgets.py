"""The parts of the full-screen chat."""

from __future__ import annotations

import time
from typing import Any, Final

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Markdown, Static, TextArea

from ..messages import Outcome, ToolCall, ToolResult
from .chat_draft import Completion, PastedBlocks, complete
from .chat_text import COMMAND_NAMES, fraction, progress_text
from .sanitize import call_line, clean, one_line
from .trace_tree import OUTCOMES

_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SECOND: Final = 10
_SEPARATOR: Final = " · "
_MARK: Final = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "
# Seconds that a question must be on the screen before one key answers it. A key that was meant for the draft is text.
_QUESTION_SETTLES: Final = 0.5


class _Draft(Message):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text: Final = text


class CompletionMenu(Static):
    """What the word before the cursor can become, one of them chosen. Not shown when there is nothing to choose."""

    _LINES: Final = 6

    def __init__(self) -> None:
        super().__init__(id="menu")
        self.completion = Completion(0, ())
        self._index = 0
        self.display = False

    @property
    def chosen(self) -> str:
        """The option that Tab takes."""
        return self.completion.options[self._index]

    def show(self, completion: Completion) -> None:
        """Offer these options, the first one chosen."""
        self.completion, self._index = completion, 0
        self.display = bool(completion.options)
        self.move(0)

    def move(self, step: int) -> None:
        """Choose another option."""
        options = self.completion.options
        self._index = (self._index + step) % max(1, len(options))
        first = max(0, min(self._index - self._LINES // 2, len(options) - self._LINES))
        shown = Text("\n").join(
            Text(clean(each), "reverse" if number == self._index else "")
            for number, each in enumerate(options)
            if first <= number < first + self._LINES
        )
        self.update(shown)


class Composer(TextArea):
    """The draft. Only sending or queueing it ever clears it."""

    class Submitted(_Draft):
        """Enter."""

    class Queued(_Draft):
        """Tab."""

    class Decided(Message):
        """One key that answers a question."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key: Final = key

    def __init__(self, menu: CompletionMenu) -> None:
        super().__init__(id="composer", show_line_numbers=False, compact=True, highlight_cursor_line=False)
        self._menu: Final = menu
        self.pasted: Final = PastedBlocks()
        self._sent_prompts: Final[list[str]] = []
        self._sent_index = 0
        self._question = ""
        self._choices = ""
        self._asked_at = 0.0

    def accept(self) -> None:
        """Remember the draft as sent, and clear it."""
        if self.text.strip():
            self._sent_prompts.append(self.text)
        self._sent_index = len(self._sent_prompts)
        self.text = ""

    def offer(self, question: str, choices: str) -> None:
        """Let these keys answer a question, by its id, while the draft is empty."""
        if question != self._question:
            self._question, self._choices, self._asked_at = question, choices, time.monotonic()

    @property
    def is_completing(self) -> bool:
        """Whether Tab completes the word before the cursor."""
        return self._menu.display

    @property
    def live_choices(self) -> str:
        """The keys that answer the question. Empty while there is a draft, and for a moment after the question came."""
        is_settled = time.monotonic() - self._asked_at >= _QUESTION_SETTLES
        return self._choices if is_settled and not self.text else ""

    async def _on_key(self, event: events.Key) -> None:
        if self._menu.display and event.key in ("tab", "up", "down"):
            if event.key == "tab":
                self._complete()
            else:
                self._menu.move(1 if event.key == "down" else -1)
            event.stop()
            event.prevent_default()
            return
        match event.key:
            case "enter":
                self.post_message(self.Submitted(self.text))
            case "tab":
                self.post_message(self.Queued(self.text))
            case "ctrl+j" | "shift+enter" | "alt+enter":
                self.insert("\n")
            case "up" if self._may_browse():
                self._browse(-1)
            case "down" if self._may_browse():
                self._browse(1)
            case key if key in tuple(self.live_choices):
                self.post_message(self.Decided(key))
            case _:
                return
        event.stop()
        event.prevent_default()

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        self.replace(clean(self.pasted.fold(text)), *self.selection)

    def on_text_area_changed(self) -> None:
        """Offer what the word before the cursor can become. A prompt that is browsed is not being written."""
        browsed = self._sent_prompts[self._sent_index] if self._sent_index < len(self._sent_prompts) else None
        before = "" if self.text == browsed else self.get_text_range((0, 0), self.cursor_location)
        self._menu.show(complete(before, COMMAND_NAMES))

    def _complete(self) -> None:
        start, chosen = self._menu.completion.start, self._menu.chosen
        before = self.get_text_range((0, 0), self.cursor_location)[:start]
        place = (before.count("\n"), start - (before.rfind("\n") + 1))
        self.replace(chosen if chosen.endswith("/") else f"{chosen} ", place, self.cursor_location)

    def _may_browse(self) -> bool:
        """Whether the arrow keys browse earlier prompts: only while that loses no draft."""
        shown = self._sent_prompts[self._sent_index] if self._sent_index < len(self._sent_prompts) else ""
        return bool(self._sent_prompts) and self.text == shown

    def _browse(self, step: int) -> None:
        self._sent_index = min(len(self._sent_prompts), max(0, self._sent_index + step))
        self.text = self._sent_prompts[self._sent_index] if self._sent_index < len(self._sent_prompts) else ""
        self.move_cursor(self.document.end)


class UserPrompt(Static):
    """A prompt of the user."""

    def __init__(self, text: str, mark: str = "") -> None:
        shown = Text.assemble((_MARK, "bold"), clean(text), (f"  {mark}" if mark else "", "dim"))
        super().__init__(shown, classes="said")
        self.transcript: Final = shown.plain


class Note(Static):
    """A message of the chat itself."""

    def __init__(self, text: str, kind: str = "note") -> None:
        super().__init__(Text(clean(text)), classes=kind)
        self.transcript: Final = clean(text)


class AnswerView(Markdown):
    """An answer of the model, shown while it streams."""

    def __init__(self) -> None:
        super().__init__("", classes="answer", open_links=False)
        self.transcript = ""
        self._text_stream: Any = None

    async def add(self, text: str) -> None:
        """Show more of the answer. Pieces that arrive faster than they can be drawn are drawn together."""
        self.transcript += clean(text)
        if self._text_stream is None:
            self._text_stream = Markdown.get_stream(self)
        await self._text_stream.write(clean(text))

    async def finish(self) -> None:
        """End the stream: everything that arrived is on the screen afterwards."""
        if self._text_stream is not None:
            await self._text_stream.stop()
            self._text_stream = None
        if self.source != self.transcript:
            await self.update(self.transcript)


class Thinking(Static):
    """The reasoning of the model."""

    def __init__(self) -> None:
        super().__init__("", classes="thinking")
        self.transcript = ""

    def add(self, text: str) -> None:
        """Show more of it."""
        self.transcript += clean(text)
        self.update(Text(self.transcript))


class ToolLine(Static):
    """One tool call: a spinner and its progress while it runs, then its outcome."""

    def __init__(self, call: ToolCall) -> None:
        super().__init__("", classes="tool")
        self.transcript = ""
        self._call_line: Final = call_line(call.name, call.arguments, 70)
        self._since: Final = time.monotonic()
        self._progress: Any = None
        self._said = ""
        self._result: ToolResult | None = None
        self._took = 0.0
        self.is_stopping = False

    def report(self, progress: Any) -> None:
        """Record the progress that the tool reports."""
        self._progress = progress

    def say(self, text: str) -> None:
        """Show the end of what a sub-agent says, in place of progress."""
        self._said = (self._said + clean(text))[-400:]
        self._progress = one_line(self._said[-60:], 60)

    def finish(self, result: ToolResult) -> None:
        """Show the result: the tool has ended, or never started."""
        self._result, self._took = result, time.monotonic() - self._since
        self.redraw()
        # An update that comes before the layout of an earlier one is drawn, but keeps the height of the earlier one.
        self.call_after_refresh(self.redraw)

    def redraw(self) -> None:
        """Draw the line again."""
        drawn = self._draw_running() if self._result is None else self._draw_ended(self._result)
        self.transcript = drawn.plain
        self.update(drawn)

    def _draw_running(self) -> Text:
        took = time.monotonic() - self._since
        spinner = _SPINNER[int(took * _FRAMES_PER_SECOND) % len(_SPINNER)]
        line = Text.assemble((f"{spinner} ", "bold yellow" if self.is_stopping else "bold cyan"), self._call_line)
        if progress_line := progress_text(self._progress):
            line.append(f"  {progress_line}", "cyan" if fraction(self._progress) is not None else "dim")
        line.append(f"  {took:.0f} s", "dim")
        return line

    def _draw_ended(self, result: ToolResult) -> Text:
        good = result.outcome is Outcome.COMPLETED and not result.is_error
        line = Text.assemble(("✓ " if good else "✗ ", "bold green" if good else "bold red"), self._call_line)
        if result.outcome is not Outcome.COMPLETED:
            line.append(f"  {OUTCOMES[result.outcome]}", "red")
        line.append(f"  {self._took:.1f} s", "dim")
        if text := one_line(result.text, 160):
            line.append(f"\n  {text}", "dim")
        return line


class HintLine(Static):
    """Says what Esc does now, and names the other keys where there is room."""

    _shown = ("", "")

    def show(self, hint: str, keys: tuple[str, ...], state: str) -> None:
        """Show the hint, and the first of `keys` that fits. `state` is one of rest, running and stopping."""
        wide = self.content_size.width
        if len(hint) > wide:
            hint = one_line(hint.rpartition(_SEPARATOR)[2], wide)  # the last part is the one about the stop key
        fitting = next((each for each in keys if len(each) <= wide - len(hint) - len(_SEPARATOR)), None)
        shown = Text.assemble((hint, "bold"), "" if fitting is None else f"{_SEPARATOR}{fitting}")
        if (shown.plain, state) != self._shown:  # each update is a layout of the screen
            self._shown = (shown.plain, state)
            self.set_classes(state)
            self.update(shown)
