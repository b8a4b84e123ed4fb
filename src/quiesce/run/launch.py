"""The start of a run, seen from its agent: what the options of one call change, and what a busy conversation means."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from .._threads.background_loop import running_loop
from ..cancellation import CancellationToken
from ..conversation.conversation import Conversation
from ..errors import ConfigurationError
from ..interrupts import Answers
from ..messages import UserMessage
from ..middleware.base import checked_middleware
from ..models.resolve import resolve_model
from ..phases import Phase
from ..tools.context import ToolContext
from ..usage.stop_policy import policy_for
from .argument_checks import (
    check_choice,
    check_deps,
    checked_server_tools,
    checked_timeout,
    checked_tool_choice,
    tool_list,
    tool_table,
)
from .config import OnBusy, OnPrompt, RunConfig, RunInput, check_price, for_owner, open_estimator
from .family import Parent
from .handoff import cost_refusal
from .instructions import checked_instructions
from .options import RunOptions
from .output import output_spec
from .own_conversation import OwnConversation
from .state import RunState, state_of_call
from .stream_timeouts import StreamTimeouts


class RunDefaults(Struct, frozen=True):
    """What a call may leave to its agent: everything that `RunOptions` has, and the agent's configuration has not.

    Raises `ConfigurationError` for an `on_busy` or `on_prompt` that does not exist.
    """

    timeout: float | None = None
    on_busy: OnBusy = "refuse"
    on_prompt: OnPrompt = "cancel_pending"
    store: Any = None

    def __post_init__(self) -> None:
        checked_timeout(self.timeout)
        check_choice("on_busy", self.on_busy, OnBusy)
        check_choice("on_prompt", self.on_prompt, OnPrompt)


class Launch:
    """One call of `Agent.start`: its options over the agent's, checked before anything changes."""

    def __init__(
        self, config: RunConfig, defaults: RunDefaults, own: OwnConversation, options: RunOptions[Any], output_type: Any
    ) -> None:
        self._options: Final = options
        self._defaults: Final = defaults
        self._own: Final = own
        within = options.get("within")
        self._parent: Final = None if within is None else _parent_of(within, config)
        own_timeout = options.get("timeout")
        self.timeout: Final = defaults.timeout if own_timeout is None else own_timeout
        """Seconds that the run may take."""
        self.owner: Final = self._owner()
        self.config: Final = for_owner(check_price(with_options(config, options, output_type)), self.owner)
        self.conversation: Final = self._conversation()

    @property
    def is_own(self) -> bool:
        """Whether the run is in the conversation that the agent keeps for itself."""
        return self.conversation is self._own.conversation

    def _owner(self) -> str:
        above = None if self._parent is None else self._parent.state.claim.context
        return self._options.get("owner", "" if above is None else above.owner)

    def _conversation(self) -> Conversation:
        options = self._options
        session = options.get("session")
        if session is not None:
            from .session_checks import shared_session  # with it come the stores

            return shared_session(session, self._defaults.store)
        if "conversation" in options:
            return options.get("conversation") or Conversation()
        return self._own.conversation

    def state(self, given: UserMessage | Answers | None) -> RunState:
        """The state of the run: from a prompt, from the answers to an interrupt, or None to continue an answer.

        Raises `InvalidPrompt`, and `ConfigurationError` for deps that do not fit.
        """
        options, within = self._options, self._options.get("within")
        token = CancellationToken() if within is None else within.token.child()  # stopped with the call, and so its run
        given_token = options.get("token")
        return RunState(
            options.get("run_id") or uuid.uuid4().hex[:12],
            self.config,
            self.conversation,
            self._input(given),
            token if given_token is None else CancellationToken.any(given_token, token),
            parent=self._parent,
        )

    def _input(self, given: UserMessage | Answers | None) -> RunInput:
        options, parent = self._options, self._parent
        above = None if parent is None else parent.state.claim.context
        deps = options.get("deps", None if above is None else above.deps)
        check_deps(deps, self.config.deps_type, self.config.agent)
        return RunInput(
            prompt=given if isinstance(given, UserMessage) else None,
            answers=dict(given) if isinstance(given, Mapping) else None,
            on_prompt=options.get("on_prompt") or self._defaults.on_prompt,
            on_busy=options.get("on_busy") or self._defaults.on_busy,
            deps=deps,
            owner=self.owner,
            limits=options.get("limits"),
            on_limit=options.get("on_limit"),
            timeout=self.timeout,
            has_own_timeout=options.get("timeout") is not None,
        )


def with_options(config: RunConfig, options: RunOptions[Any], output_type: Any = None) -> RunConfig:
    """The config of one run, with what the call gives instead of the agent's. Raises `ConfigurationError`."""
    given = {name: options.get(name) for name in ("limits", "on_limit", "settings", "retry", "tool_choice", "one_step")}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if "first_token_timeout" in options or "stream_gap_timeout" in options:
        before = config.stream_timeouts
        changes["stream_timeouts"] = StreamTimeouts(
            options.get("first_token_timeout", before.first_token), options.get("stream_gap_timeout", before.gap)
        )
    given_model = options.get("model")
    if given_model is not None:
        model = resolve_model(given_model)
        changes |= {"model": model, "estimator": open_estimator(model)}
        changes["stop_policy"] = policy_for(model.name, getattr(model, "stop_policy", None))
    instructions, tools = options.get("instructions"), options.get("tools")
    if instructions is not None:
        changes["instructions"] = checked_instructions(instructions)
    if tools is not None:
        tools = tool_list(tools)
        changes["tools"] = tool_table(tools, config.deps_type)
    if options.get("middleware") is not None:
        changes["middleware"] = checked_middleware(options.get("middleware"))
    if output_type is not None:
        changes["output"] = output_spec(output_type)
    if tools is not None or given_model is not None:
        wanted = config.server_tools if tools is None else tools
        changes["server_tools"] = checked_server_tools(wanted, changes.get("model", config.model))
    config = replace(config, **changes) if changes else config
    if config.tool_choice is not None:
        checked_tool_choice(config.tool_choice, config.tools)
    return config


def _parent_of(context: ToolContext[Any], config: RunConfig) -> Parent:
    """The run that a tool's context belongs to, as a parent. Raises `ConfigurationError` when it cannot be one."""
    state = state_of_call(context.run_id)
    if running_loop() is not state.progress.loop:
        raise ConfigurationError(
            "A child run must be started in the event loop of its parent.",
            todo="Make the tool an async function, and await there what is started.",
        )
    if state.progress.ended or (state.progress.phase is Phase.SETTLING and state.progress.finished):
        raise ConfigurationError(
            f"Run {state.run_id} has ended: it can have no more children.",
            todo="Start it while the tool that it is for is running, or without within=.",
        )
    refusal = cost_refusal(state, config)
    if refusal is not None:
        raise ConfigurationError(
            f"The parent's Limits(cost=...) {refusal}.",
            todo="Limit tokens instead, or give the model a price in that currency.",
        )
    return Parent(state, context.call_id)
