"""The parts of the full-screen chat."""

from __future__ import annotations

import time
from typing import Any, Final

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Markdown, Static, TextArea

from ..messages import Outcome, ToolCall, ToolResult
from .chat_text import fraction, progress_words
from .sanitize import call_line, clean, one_line

_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TURNS_PER_SECOND: Final = 10
_BETWEEN: Final = " · "
_MARK: Final = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "
_WORDS: Final = {
    Outcome.COMPLETED: "done",
    Outcome.NEVER_STARTED: "never started",
    Outcome.CANCELLED: "cancelled while running",
    Outcome.KILLED: "killed",
    Outcome.ABANDONED: "abandoned, may still be running",
    Outcome.UNKNOWN: "unknown",
}


class Composer(TextArea):
    """The draft. Only sending or queueing it ever clears it."""

    class SentRequest(Message):
        """Enter."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text: Final = text

    class Queued(Message):
        """Tab."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text: Final = text

    def __init__(self) -> None:
        super().__init__(id="composer", show_line_numbers=False, compact=True, highlight_cursor_line=False)
        self._said: Final[list[str]] = []
        self._looking_at = 0

    def take(self) -> None:
        """The draft was sent: remember it, and begin a new one."""
        if self.text.strip():
            self._said.append(self.text)
        self._looking_at = len(self._said)
        self.text = ""

    async def _on_key(self, event: events.Key) -> None:
        match event.key:
            case "enter":
                self.post_message(self.SentRequest(self.text))
            case "tab":
                self.post_message(self.Queued(self.text))
            case "ctrl+j" | "shift+enter" | "alt+enter":
                self.insert("\n")
            case "up" if self._may_look_back():
                self._look(-1)
            case "down" if self._may_look_back():
                self._look(1)
            case _:
                return
        event.stop()
        event.prevent_default()

    def _may_look_back(self) -> bool:
        """Whether the arrows leaf through what was said: only while that loses no draft."""
        shown = self._said[self._looking_at] if self._looking_at < len(self._said) else ""
        return bool(self._said) and self.text == shown

    def _look(self, step: int) -> None:
        self._looking_at = min(len(self._said), max(0, self._looking_at + step))
        self.text = self._said[self._looking_at] if self._looking_at < len(self._said) else ""
        self.move_cursor(self.document.end)


class Said(Static):
    """What the person said."""

    def __init__(self, text: str, mark: str = "") -> None:
        shown = Text.assemble((_MARK, "bold"), clean(text), (f"  {mark}" if mark else "", "dim"))
        super().__init__(shown, classes="said")


class Note(Static):
    """A few words of the chat itself."""

    def __init__(self, text: str, kind: str = "note") -> None:
        super().__init__(Text(clean(text)), classes=kind)


class Answer(Markdown):
    """An answer, while it comes."""

    def __init__(self) -> None:
        super().__init__("", classes="answer", open_links=False)
        self._whole = ""
        self._pieces: Any = None

    async def add(self, text: str) -> None:
        """Show some more of it. Pieces that come faster than they can be drawn are drawn together."""
        self._whole += clean(text)
        if self._pieces is None:
            self._pieces = Markdown.get_stream(self)
        await self._pieces.write(clean(text))

    async def finish(self) -> None:
        """Nothing more comes: everything that came is on the screen now."""
        if self._pieces is not None:
            await self._pieces.stop()
            self._pieces = None
        if self.source != self._whole:
            await self.update(self._whole)


class Thinking(Static):
    """What the model thinks, in small."""

    def __init__(self) -> None:
        super().__init__("", classes="thinking")
        self._thought = ""

    def add(self, text: str) -> None:
        """Show some more of it."""
        self._thought += clean(text)
        self.update(Text(self._thought))


class ToolLine(Static):
    """One tool call: a spinner and its progress while it runs, then what became of it."""

    def __init__(self, call: ToolCall) -> None:
        super().__init__("", classes="tool")
        self._call_line: Final = call_line(call.name, call.arguments, 70)
        self._since: Final = time.monotonic()
        self._progress: Any = None
        self._result: ToolResult | None = None
        self.is_waited_for = False

    def report(self, progress: Any) -> None:
        """The tool says how far it is."""
        self._progress = progress

    def finish(self, result: ToolResult) -> None:
        """The tool has ended, or never began."""
        self._result = result
        self.turn()

    def turn(self) -> None:
        """Draw it anew."""
        self.update(self._draw_running() if self._result is None else self._draw_ended(self._result))

    def _draw_running(self) -> Text:
        took = time.monotonic() - self._since
        spinner = _SPINNER[int(took * _TURNS_PER_SECOND) % len(_SPINNER)]
        line = Text.assemble((f"{spinner} ", "bold yellow" if self.is_waited_for else "bold cyan"), self._call_line)
        words = progress_words(self._progress)
        if words:
            line.append(f"  {words}", "cyan" if fraction(self._progress) is not None else "dim")
        line.append(f"  {took:.0f} s", "dim")
        return line

    def _draw_ended(self, result: ToolResult) -> Text:
        good = result.outcome is Outcome.COMPLETED and not result.is_error
        took = time.monotonic() - self._since
        line = Text.assemble(("✓ " if good else "✗ ", "bold green" if good else "bold red"), self._call_line)
        word = _WORDS[result.outcome] if not (result.is_error and good) else "failed"
        if result.outcome is not Outcome.COMPLETED:
            line.append(f"  {word}", "red")
        line.append(f"  {took:.1f} s", "dim")
        said = one_line(result.text, 160)
        if said:
            line.append(f"\n  {said}", "dim")
        return line


class HintLine(Static):
    """What Esc will do now, always; and the other keys where there is room."""

    def show(self, hint: str, keys: tuple[str, ...], state: str) -> None:
        """Show the hint, and the first of `keys` that fits. `state` is one of rest, running and stopping."""
        self.set_classes(state)
        wide = self.content_size.width
        if len(hint) > wide:
            hint = one_line(hint.rpartition(_BETWEEN)[2], wide)  # the last part is the one about the stop key
        fitting = next((each for each in keys if len(each) <= wide - len(hint) - len(_BETWEEN)), None)
        self.update(Text.assemble((hint, "bold"), "" if fitting is None else f"{_BETWEEN}{fitting}"))
