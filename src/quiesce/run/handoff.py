"""A handoff: another agent continues the conversation in the same run."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from msgspec.structs import replace

from ..errors import ToolError
from ..events import HandedOff
from ..tools.context import ToolContext
from ..tools.tool import HandoffTarget
from .config import Handoff, RunConfig, billing_terms, for_owner, price_of
from .state import RunState, state_of_call


@runtime_checkable
class Successor(HandoffTarget, Protocol):
    """What a handoff needs of the agent that continues."""

    @property
    def config(self) -> RunConfig:
        """What runs of the agent are started with."""
        ...


def request_handoff(context: ToolContext, agent: Successor) -> None:
    """Let another agent continue after this turn, for a tool that asks for it. Raises `ToolError` when it cannot be."""
    begin_handoff(state_of_call(context.run_id), agent, context.tool_name)


def begin_handoff(state: RunState, agent: Successor, tool_name: str) -> None:
    """Let another agent continue the conversation after this turn. Raises `ToolError` when that cannot be."""
    config = agent.config
    if state.turn.handoff is not None:
        raise ToolError(f"The conversation is already handed over to {state.turn.handoff.config.agent}.")
    refusal = cost_refusal(state, config)
    if refusal is not None:
        raise ToolError(f"{config.agent} cannot take over: the run's cost limit {refusal}.")
    state.turn.handoff = Handoff(config, tool_name)


def cost_refusal(state: RunState, config: RunConfig) -> str | None:
    """Why a limit on the cost of this run, or of a parent, cannot be kept with another model's price."""
    price = price_of(config)
    for each in state.family.lineage:
        limited_in = price_of(each.config) if each.config.limits.cost is not None else None
        if limited_in is None:
            continue
        if price is None:
            return f"needs a price, and none is known for {config.model.name}"
        if price.currency != limited_in.currency:
            return f"is in {limited_in.currency}, and {config.model.name} is paid in {price.currency}"
    return None


def complete_handoff(state: RunState, handoff: Handoff) -> None:
    """Go on with the agent that a handoff of this turn names."""
    state.turn.handoff = None
    before, after = state.config, for_owner(handoff.config, state.claim.context.owner)
    state.config = replace(
        after,
        limits=before.limits,
        on_limit=before.on_limit,
        hooks=before.hooks.joined(after.hooks),
        middleware=tuple(dict.fromkeys((*before.middleware, *after.middleware))),
        handoffs=(*before.handoffs, handoff.tool_name),
    )
    state.spending.bill.switch_model(billing_terms(state.config))
    if state.claim.held:  # else the handoff was made in an earlier run
        state.events.push(HandedOff(before.agent, after.agent))
