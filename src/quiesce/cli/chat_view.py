"""The conversation on the full screen: what the events of a run show."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from textual.containers import Vertical, VerticalScroll
from textual.widget import Widget

from .. import events
from ..messages import ToolCall
from .chat_text import ENDINGS
from .chat_widgets import AnswerView, Note, Thinking, ToolLine, UserPrompt
from .sanitize import one_line

_Writing = TypeVar("_Writing", AnswerView, Thinking)
_Path = tuple[str, ...]


class ConversationView(VerticalScroll):
    """Prompts, answers, tools and receipts, in order. The calls of a sub-agent are inside the call that started it."""

    def __init__(self) -> None:
        super().__init__(id="conversation", can_focus=False)
        # Tool lines, and the containers of what sub-agents do, by the ids of the calls from the outermost on.
        self._tools: Final[dict[_Path, ToolLine]] = {}
        self._nested: Final[dict[_Path, Vertical]] = {}
        self._writing: AnswerView | Thinking | None = None
        self._seen_rows = 0

    async def add(self, widget: Widget, inside: _Path = ()) -> None:
        """Show one thing more, inside the call of a sub-agent or at the end."""
        if self.is_attached:  # it is not when the application is leaving: nothing more is shown
            await self._nested.get(inside, self).mount(widget)

    async def add_prompt(self, text: str, mark: str = "") -> None:
        """Show a prompt of the user, and go to it."""
        await self.settle_writing()
        await self.add(UserPrompt(text, mark))
        self.anchor()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Remember how far the user has seen."""
        super().watch_scroll_y(old_value, new_value)
        self._seen_rows = max(self._seen_rows, round(max(old_value, new_value)) + self.size.height)

    @property
    def new_lines(self) -> int:
        """How many lines came below what the user has seen."""
        rows = self.virtual_size.height
        if self.is_vertical_scroll_end:
            self._seen_rows = rows
        return max(0, rows - self._seen_rows)

    @property
    def transcript(self) -> str:
        """Everything that was shown, as text."""
        return "\n\n".join(_lines(self))

    def redraw_tools(self, *, stopping: bool) -> None:
        """Draw the lines of the tools that run."""
        for line in self._tools.values():
            line.is_stopping = stopping
            line.redraw()

    # --- Events -----------------------------------------------------------------------------------------------------

    async def show(self, event: events.Event) -> None:
        """Show an event of the run."""
        match event:
            case events.TextDelta(text):
                await (await self._write(AnswerView)).add(text)
            case events.ReasoningDelta(text) if text:
                (await self._write(Thinking)).add(text)
            case events.ProviderPartDelta(_, kind):
                await self.settle_writing()
                await self.add(Note(f"[{kind}]"))
            case events.ModelCallStarted():
                await self.settle_writing()
            case events.RunEnded():
                await self._end(event)
            case events.ChildEvent(call_id, _, inner):
                await self._show_child((call_id,), inner)
            case _:
                await self._show_tool((), event)
                await self._show_trouble(event)

    async def _show_child(self, path: _Path, event: events.Event) -> None:
        """Show what a sub-agent does below its call: its tools as lines, its text in the line of the call."""
        match event:
            case events.ChildEvent(call_id, _, inner):
                await self._show_child((*path, call_id), inner)
            case events.TextDelta(text) if path in self._tools:
                self._tools[path].say(text)
            case events.ToolStarted() | events.ToolProgress() | events.ToolEnded():
                if path not in self._nested and path in self._tools:
                    self._nested[path] = Vertical(classes="nested")
                    await self._nested.get(path[:-1], self).mount(self._nested[path], after=self._tools[path])
                await self._show_tool(path, event)
            case _:
                pass

    async def _show_tool(self, path: _Path, event: events.Event) -> None:
        match event:
            case events.ToolStarted(call):
                await self._begin_tool(path, call)
            case events.ToolProgress(call_id, _, progress) if (*path, call_id) in self._tools:
                self._tools[*path, call_id].report(progress)
            case events.ToolEnded(result):
                if (*path, result.call_id) not in self._tools:
                    await self._begin_tool(path, ToolCall(result.call_id, result.name, {}))
                self._tools.pop((*path, result.call_id)).finish(result)
                self._nested.pop((*path, result.call_id), None)
            case _:
                pass

    async def _begin_tool(self, path: _Path, call: ToolCall) -> None:
        await self.settle_writing()
        line = self._tools[*path, call.id] = ToolLine(call)
        await self.add(line, path)
        line.redraw()

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
        await self.add(Note(what, "problem"))

    async def _write(self, kind: type[_Writing]) -> _Writing:
        """The widget for text of this kind: the current one, or a new one."""
        if not isinstance(self._writing, kind):
            await self.settle_writing()
            self._writing = kind()
            await self.add(self._writing)
        return self._writing

    async def settle_writing(self) -> None:
        """End the answer that is being shown; what comes next is below it."""
        writing, self._writing = self._writing, None
        if isinstance(writing, AnswerView):
            await writing.finish()

    async def _end(self, event: events.RunEnded) -> None:
        await self.settle_writing()
        self._tools.clear()
        self._nested.clear()
        if event.error is not None:
            await self.add(Note(event.error, "problem"))
        receipt = event.receipt
        if receipt.cause is None and event.stop_reason != "error":
            used = receipt.usage
            word = ENDINGS.get(event.stop_reason, event.stop_reason)
            await self.add(Note(f"{word} · {used.input} in, {used.output} out"))
            return
        card = Note(str(receipt), "receipt")
        card.border_title = "Stopped" if receipt.cause is not None else "Failed"
        card.set_class(receipt.cause is None, "failed")
        await self.add(card)


def _lines(parent: Widget, indent: str = "") -> list[str]:
    """The text of each part, in order. Nested parts are indented."""
    found: list[str] = []
    for each in parent.children:
        text: Any = getattr(each, "transcript", None)
        if isinstance(text, str) and text:
            found.append("\n".join(indent + line for line in text.splitlines()))
        elif isinstance(each, Vertical):
            found += _lines(each, indent + "    ")
    return found
