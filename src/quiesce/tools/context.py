"""What a running tool may see and do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..cancellation import TokenView


class ToolContext:
    """Given to a tool that has a parameter of this type. Safe to use from the tool's thread."""

    __slots__ = ("_cancel", "_report", "call_id", "idempotency_key", "run_id", "state", "token", "tool_name")

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
        idempotency_key: str = "",
    ) -> None:
        self.run_id: Final = run_id
        self.call_id: Final = call_id
        self.tool_name: Final = tool_name
        self.idempotency_key: Final = idempotency_key
        """The same for the same call of the same session, also in another process after a crash; unlike any other."""
        self.token: Final = token
        """Tells whether, and why, the run was asked to stop. To look at and to wait for."""
        self.state: Final = state
        """The agent's `state`: yours to read and write."""
        self._report: Final = report
        self._cancel: Final = cancel

    def report(self, progress: Any) -> None:
        """Tell the readers of the run how far the work has come: any JSON-like value. Never waits."""
        self._report(progress)

    def cancel(self, reason: str = "") -> None:
        """Ask the whole run to stop (cause: `tool`). Returns at once; the stop then reaches this tool as well."""
        self._cancel(reason)
