"""What a running tool may see and do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..cancellation import TokenView
from ..errors import ToolError
from .asking import Asking


class ToolContext:
    """Given to a tool that has a parameter of this type. Safe to use from the tool's thread."""

    __slots__ = ("_asking", "_cancel", "_report", "call_id", "run_id", "state", "token", "tool_name")

    def __init__(
        self,
        *,
        run_id: str,
        call_id: str,
        tool_name: str,
        token: TokenView,
        state: dict[str, Any],
        report: Callable[[Any], None],
        cancel: Callable[[str], None],
        asking: Asking | None = None,
    ) -> None:
        self.run_id: Final = run_id
        self.call_id: Final = call_id
        self.tool_name: Final = tool_name
        self.token: Final = token
        """Tells whether, and why, the run was asked to stop. To look at and to wait for."""
        self.state: Final = state
        """The agent's `state`: yours to read and write."""
        self._report: Final = report
        self._cancel: Final = cancel
        self._asking: Final = asking

    def report(self, progress: Any) -> None:
        """Tell the readers of the run how far the work has come: any JSON-like value. Never waits."""
        self._report(progress)

    def cancel(self, reason: str = "") -> None:
        """Ask the whole run to stop (cause: `tool`). Returns at once; the stop then reaches this tool as well."""
        self._cancel(reason)

    def interrupt(self, name: str, reason: Any = None, *, expires_in: float | None = None) -> Any:
        """Ask a person, and return the answer.

        The first time, this leaves the tool: the run ends with `stop_reason == "interrupt"`. When it is resumed with an
        answer, the tool is called again from its beginning, and this returns the answer. So what stands before the
        question runs again: ask first and act afterwards, or make it safe to repeat. Several questions in one tool need
        names of their own. Never in a `try` that catches `BaseException`.

        reason       any JSON-like value, for the person
        expires_in   seconds, after which no answer is accepted

        Raises `ToolError` for a reason that has no JSON form, and where nobody can be asked.
        """
        if self._asking is None:
            raise ToolError("Nobody can be asked from here.")
        return self._asking.ask(name, reason, expires_in=expires_in)

    @property
    def kept(self) -> Any:
        """What `InterruptSignal(kept=...)` gave, when the tool is called again after an interrupt; else None."""
        return None if self._asking is None else self._asking.kept

    @property
    def answers(self) -> dict[str, Any]:
        """The answers so far to what this call asked, by name."""
        return {} if self._asking is None else dict(self._asking.answers)
