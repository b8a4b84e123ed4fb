"""The last answer of a run: parsed into the wanted type, accepted as the end, or sent back to the model."""

from __future__ import annotations

from typing import Any, Final

from ..messages import Text, UserMessage
from .output import OutputMismatch
from .state import RunState

# A provider that pauses more often in one answer does not come to an end.
_MOST_PAUSES: Final = 20


def parse_output(state: RunState) -> tuple[Any, ...]:
    """The structured output, if one is wanted and the model did not refuse. Raises `OutputMismatch`."""
    builder = state.turn.view.builder
    if state.config.output is None or builder is None or builder.ended == "refusal":
        return ()
    return (state.config.output.parse(builder.text()),)


def is_paused(state: RunState) -> bool:
    """Whether the provider has paused in the middle of its own tools, and is to be asked to go on."""
    view = state.turn.view
    paused = view.builder is not None and view.builder.ended == "pause" and view.batch is None
    return paused and state.turn.answer is not None and state.turn.pauses < _MOST_PAUSES


def finish_with_answer(state: RunState, output: tuple[Any, ...]) -> None:
    """End the run with its answer, and what that is as the wanted type."""
    assert state.turn.view.builder is not None
    reason = state.turn.view.builder.ended
    assert reason is not None
    # A model that says "tool_use" and asks for no tool has nothing left to do either.
    state.progress.finish("end_turn" if reason == "tool_use" else reason, output)


def output_feedback(state: RunState) -> UserMessage | None:
    """The user message after an answer that does not fit; None when it fits."""
    try:
        parse_output(state)
    except OutputMismatch as mismatch:
        return UserMessage(
            (Text(f"That answer is not valid: {mismatch}. Answer again, with JSON that fits the schema."),)
        )
    return None
