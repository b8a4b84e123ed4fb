"""Handing a conversation over to another agent, which goes on with it in the same run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import ToolError
from ..events import HandedOver
from .config import Handover, Setup, price_of, terms_of
from .state import Course


def hand_over(course: Course, agent: Any, tool_name: str) -> None:
    """Let another agent continue the conversation after this turn. Raises `ToolError` when that cannot be."""
    setup: Setup = agent.setup
    if course.handover is not None:
        raise ToolError(f"The conversation is already handed over to {course.handover.setup.agent}.")
    refusal = cannot_pay(course, setup)
    if refusal is not None:
        raise ToolError(f"{setup.agent} cannot take over: the run's cost limit {refusal}.")
    course.handover = Handover(setup, tool_name)


def cannot_pay(course: Course, setup: Setup) -> str | None:
    """Why a limit on the cost of this run, or of one above it, cannot be kept with another model's price."""
    price = price_of(setup)
    for each in course.lineage():
        limited_in = price_of(each.setup) if each.setup.limits.cost is not None else None
        if limited_in is None:
            continue
        if price is None:
            return f"needs a price, and none is known for {setup.model.name}"
        if price.currency != limited_in.currency:
            return f"is in {limited_in.currency}, and {setup.model.name} is paid in {price.currency}"
    return None


def take_over(course: Course) -> None:
    """Go on with the agent that the conversation was handed to, if it was."""
    handover, course.handover = course.handover, None
    if handover is None:
        return
    before, setup = course.setup, handover.setup
    course.setup = replace(setup, limits=before.limits, hooks=before.hooks.joined(setup.hooks))
    course.handed += (handover.tool_name,)
    course.bill.deal_with(terms_of(course.setup))
    if course.has_floor:  # else it was handed over in an earlier run
        course.emit(HandedOver(before.agent, setup.agent))
