"""The options of one run: what a caller may give beside the prompt."""

from __future__ import annotations

from typing import Any, Final, TypedDict

from ..cancellation import CancellationToken
from ..errors import ConfigurationError
from ..limits import Limits
from ..sessions import Conversation
from ..tools.context import ToolContext
from .argument_checks import check_choice, checked_seconds
from .config import OnBusy, OnPrompt


class RunOptions(TypedDict, total=False):
    """The options of `Agent.start`, and of every other way to run an agent. Those left out, or None, are the agent's.

    timeout        seconds that the run may take; then it is stopped (cause: `deadline`)
    limits         budgets; see `Limits`
    token          a parent: cancelling it stops this run too
    conversation   the conversation to use instead of the agent's own (see `Conversation.branch`)
    output_type    the type of the answer
    on_busy        what to do while another run holds the conversation; with "steer", the handle is that of the run
                   that was steered
    on_prompt      what a plain prompt does while an approval is pending
    within         in an async tool: its context. The run is a child of the tool's run then: stopped with it, read
                   with it, and paid from what is left of its limits
    """

    timeout: float | None
    limits: Limits | None
    token: CancellationToken | None
    conversation: Conversation | None
    output_type: Any
    on_busy: OnBusy | None
    on_prompt: OnPrompt | None
    within: ToolContext | None


_KNOWN: Final = frozenset(RunOptions.__annotations__)


def check_options(options: RunOptions) -> None:
    """Raises `ConfigurationError` for an option that does not exist, or whose value makes no sense."""
    for name in options:
        if name not in _KNOWN:
            raise ConfigurationError(
                f"There is no option {name!r} of a run.", todo=f"Use: {', '.join(sorted(_KNOWN))}."
            )
    checked_seconds(options.get("timeout"))
    on_busy, on_prompt = options.get("on_busy"), options.get("on_prompt")
    if on_busy is not None:
        check_choice("on_busy", on_busy, OnBusy)
    if on_prompt is not None:
        check_choice("on_prompt", on_prompt, OnPrompt)
