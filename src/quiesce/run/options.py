"""The options of one run: what a caller may give beside the prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypedDict

from ..cancellation import CancellationToken
from ..conversation.conversation import Conversation
from ..errors import ConfigurationError
from ..limits import Limits, OnLimit
from ..middleware.base import Middleware, checked_middleware
from ..models.base import Model, ToolChoice
from ..retry import Retry
from ..run_context import DepsT
from ..tools.context import ToolContext
from .argument_checks import ToolSource, check_choice, check_instance, check_text_keys, checked_timeout
from .config import OnBusy, OnPrompt
from .instructions import Instruction
from .stream_timeouts import checked_stream_timeout

if TYPE_CHECKING:
    from ..sessions import Session


class RunOptions(TypedDict, Generic[DepsT], total=False):
    """The options of `Agent.start`, and of every other way to run an agent. Those left out are the agent's.

    deps           what belongs to this run: tools, hooks and instructions see it as `ctx.deps`. Never stored
    session        the session to use: its name, in the agent's store, or a `Session`
    conversation   the conversation to use instead of the agent's own; None for a question that is not remembered
    timeout        seconds that the run may take; then it is stopped (cause: `deadline`)
    limits         budgets; see `Limits`
    on_limit       what happens at a limit: "stop", "answer" (one last answer, without tools) or "ask" (a person)
    first_token_timeout   seconds until the model's first word; None for no timeout
    stream_gap_timeout    seconds between two parts of an answer; None for no timeout
    token          a parent: cancelling it stops this run too
    model          the model for this run
    settings       the settings of its requests
    instructions   the instructions for this run
    tools          the tools for this run
    middleware     the middleware for this run, instead of the agent's
    tool_choice    "auto", "none", "required", or the name of a tool that the first answer must call
    retry          when a failed model call is tried again
    on_busy        what to do while another run holds the conversation; with "steer", the handle is that of the run
                   that was steered
    on_prompt      what a plain prompt does while an approval is pending
    within         in an async tool: its context. The run is a child of the tool's run then: stopped with it, read
                   with it, and paid from what is left of its limits; `deps` are the parent's unless given
    owner          who the run is for, as tools see it in `ctx.owner`; servers set it
    run_id         the id of the run, which no other run has had; workers set it
    one_step       end before the tools that an answer asks for, or after those of the pending turn, with the turn
                   pending; engines set it that run each step by itself
    """

    deps: DepsT
    session: str | Session
    conversation: Conversation | None
    timeout: float | None
    limits: Limits | None
    on_limit: OnLimit | None
    first_token_timeout: float | None
    stream_gap_timeout: float | None
    token: CancellationToken | None
    model: Model | str | None
    settings: Mapping[str, Any] | None
    instructions: Instruction[DepsT] | list[Instruction[DepsT]] | tuple[Instruction[DepsT], ...] | None
    tools: Iterable[ToolSource] | None
    middleware: Sequence[Middleware[Any]] | None
    tool_choice: ToolChoice | None
    retry: Retry | None
    on_busy: OnBusy | None
    on_prompt: OnPrompt | None
    within: ToolContext[Any] | None
    owner: str
    run_id: str
    one_step: bool


def _check_session(session: object) -> None:
    if session is not None:
        from .session_checks import check_session  # with it come the stores

        check_session(session)


def _check_name(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ConfigurationError(f"{name}={value!r} makes no sense.", todo="Use a name.")


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name}={value!r} makes no sense.", todo="Use True or False.")


def _check_choice(name: str, value: object, allowed: Any) -> None:
    if value is not None:
        check_choice(name, value, allowed)


_KNOWN: Final = frozenset(RunOptions.__annotations__)
# Options that are checked before there is a run; the others are checked as they are used.
_CHECKS: Final[dict[str, Callable[[Any], object]]] = {
    "timeout": checked_timeout,
    "limits": lambda value: check_instance("limits", value, Limits, "Limits(...)"),
    "token": lambda value: check_instance("token", value, CancellationToken, "a CancellationToken"),
    "conversation": lambda value: check_instance(
        "conversation", value, Conversation, "a Conversation, a Session, or None"
    ),
    "session": _check_session,
    "settings": lambda value: check_text_keys("settings", value),
    "retry": lambda value: check_instance("retry", value, Retry, "Retry(...)"),
    "middleware": checked_middleware,
    "within": lambda value: check_instance(
        "within", value, ToolContext, "the ToolContext of the tool that starts the run"
    ),
    "owner": partial(_check_name, "owner"),
    "run_id": partial(_check_name, "run_id"),
    "one_step": partial(_check_flag, "one_step"),
    "first_token_timeout": partial(checked_stream_timeout, "first_token_timeout"),
    "stream_gap_timeout": partial(checked_stream_timeout, "stream_gap_timeout"),
    "on_busy": partial(_check_choice, "on_busy", allowed=OnBusy),
    "on_prompt": partial(_check_choice, "on_prompt", allowed=OnPrompt),
    "on_limit": partial(_check_choice, "on_limit", allowed=OnLimit),
}


def check_options(options: RunOptions[Any]) -> None:
    """Raises `ConfigurationError` for an option that does not exist, or has a value that cannot be meant."""
    for name, value in options.items():
        if name not in _KNOWN:
            raise ConfigurationError(
                f"There is no option {name!r} of a run.", todo=f"Use: {', '.join(sorted(_KNOWN))}."
            )
        if name in _CHECKS:
            _CHECKS[name](value)
    if "session" in options and options.get("conversation") is not None:
        raise ConfigurationError("Both a conversation and a session.", todo="Use one of them.")
