"""A look inside a run, for servers, dashboards and test kits."""

from __future__ import annotations

from msgspec import Struct

from ..cancellation import Cause, Mode
from ..phases import Phase
from ..result import RunResult
from .config import RunConfig


class RunInspection(Struct, frozen=True):
    """What a run is doing in one instant. It does not change when the run goes on.

    phase            what the run is doing
    turn, attempt    the number of the turn, and of the try to get its answer
    cause, mode      the stop that was asked for, if any
    config           what the run is configured with; after a handoff, the configuration of the agent that goes on
    continued_text   the text of the answer that the run goes on with, after `continue_()` or an approval
    result           the result, once it is written; the run is at rest a moment later
    """

    phase: Phase
    turn: int
    attempt: int
    cause: Cause | None
    mode: Mode | None
    config: RunConfig
    continued_text: str
    result: RunResult | None
