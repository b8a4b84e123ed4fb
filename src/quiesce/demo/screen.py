"""The output of the demo: streamed text, running tools, and the receipt."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Final

from .. import events
from ..messages import Outcome, ToolResult
from ..receipt import Receipt

_INDENT: Final = "  "
_STYLES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_OUTCOME_TEXT: Final = {
    Outcome.NEVER_STARTED: "never started",
    Outcome.CANCELLED: "cut",
    Outcome.KILLED: "killed",
    Outcome.ABANDONED: "left running: a thread cannot be killed",
    Outcome.UNKNOWN: "unknown",
}


class Screen:
    """Prints the demo: on a terminal with colours and a status line, otherwise plain. `NO_COLOR` is respected."""

    def __init__(self) -> None:
        self._live: Final = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._colours: Final = self._live and not os.environ.get("NO_COLOR")
        self._width: Final = min(shutil.get_terminal_size().columns, 92) - 2
        self._column = 0
        self._word = ""
        self._gap = ""
        self._asking = False
        self._progress: Final[dict[str, tuple[str, str]]] = {}

    # --- Parts of the demo ---------------------------------------------------------------------------------------

    def title(self, how: str) -> None:
        """The first lines."""
        self._line(
            self._styled("Quiesce", "bold") + self._styled("  an agent that can be stopped at any instant", "dim")
        )
        self._line(self._styled("No key, no network.", "dim"))
        self._line(self._styled(how, "yellow"))

    def prompt(self, text: str) -> None:
        """Show a prompt that the user did not type."""
        self._line(f"\n{self._styled('you', 'cyan')}    {text}")

    def ask(self) -> None:
        """Show the input prompt."""
        self._asking = True
        self._write(f"\n{self._styled('you', 'cyan')}    ")

    def answered(self) -> None:
        """Note that the user has typed a line."""
        self._asking = False

    def notice(self, text: str) -> None:
        """Show a message of the demo itself."""
        self._settle()
        self._line(self._styled(f"{_INDENT}{text}", "yellow"))
        if self._asking:
            self.ask()

    def receipt(self, receipt: Receipt) -> None:
        """Show a receipt."""
        self._settle()
        first, *rest = str(receipt).splitlines()
        rule = "-" * min(self._width, 60)
        self._line(f"\n{self._styled(rule, 'dim')}")
        self._line(self._styled(first, "bold"))
        for line in rest:
            self._line(f"{self._styled(line[:12], 'dim')}{line[12:]}")
        self._line(self._styled(rule, "dim"))

    def goodbye(self) -> None:
        """The last line."""
        self._settle()
        self._line(self._styled("\nAt rest. Read on in README.md.", "dim"))

    # --- Events ---------------------------------------------------------------------------------------------------

    def show(self, event: events.Event, speaker: str = "baker") -> None:
        """Show an event of the run."""
        match event:
            case events.ModelCallStarted():
                self._settle()
                self._write(f"\n{self._styled(speaker, 'green')}")
                self._column, self._gap = 5, "  "
            case events.TextDelta(text):
                self._speak(text)
            case events.ToolCallStart():
                self._settle()
            case events.ToolStarted(call):
                arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
                self._above_status(self._styled(f"{_INDENT}> {call.name}({arguments})", "dim"))
            case events.ToolProgress(call_id, name, progress):
                self._progress[call_id] = (name, str(progress))
                self._show_status()
            case events.ToolEnded(result):
                self._progress.pop(result.call_id, None)
                self._above_status(self._ending(result))
            case events.StopRequested(cause, waiting_for):
                asked = f"Stop asked for ({cause})."
                self.notice(f"{asked} Waiting for {', '.join(waiting_for)}." if waiting_for else asked)
            case _:
                pass

    def _ending(self, result: ToolResult) -> str:
        if result.outcome is Outcome.COMPLETED:
            return self._styled(f"{_INDENT}+ {result.name}: ", "green") + result.text
        return self._styled(f"{_INDENT}x {result.name}: {_OUTCOME_TEXT[result.outcome]}", "red")

    # --- Words, wrapped as they come --------------------------------------------------------------------------------

    def _speak(self, text: str) -> None:
        for character in text:
            if not character.isspace():
                self._word += character
                continue
            self._end_word()
            if character == "\n":
                self._break()
            else:
                self._gap = " " if self._column else ""

    def _end_word(self) -> None:
        """Write the current word, on the next line if it does not fit on this one."""
        if self._column + len(self._gap) + len(self._word) > self._width:
            self._break()
        start = self._gap if self._column else _INDENT
        self._write(start + self._word)
        self._column += len(start) + len(self._word)
        self._word = self._gap = ""

    def _break(self) -> None:
        self._write("\n")
        self._column = 0
        self._gap = ""

    def _settle(self) -> None:
        """Write the last word, end its line, and clear the status line."""
        if self._word:
            self._end_word()
        if self._column:
            self._break()
        self._clear_status()

    # --- The status line --------------------------------------------------------------------------------------------

    def _show_status(self) -> None:
        if self._live:
            status = "   ".join(f"{name}: {progress}" for name, progress in self._progress.values())
            self._write(f"\r\x1b[K{self._styled(f'{_INDENT}... {status}'[: self._width], 'dim')}")

    def _clear_status(self) -> None:
        if self._live:
            self._write("\r\x1b[K")

    def _above_status(self, line: str) -> None:
        self._settle()
        self._line(line)
        if self._progress:
            self._show_status()

    # --- Writing ----------------------------------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self._colours else text
