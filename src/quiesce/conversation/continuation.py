"""Going on with an answer that was cut."""

from __future__ import annotations

from typing import Final

from ..messages import AssistantContent, AssistantMessage, CutNote, Reasoning, Text, ToolCall

# The user message for a model that does not take prefill.
GO_ON: Final = "Go on with your answer, exactly where it was stopped. Do not repeat what you have said."
GO_ON_FROM_END: Final = "Go on."


def continued(last: AssistantMessage, *, prefill: bool) -> tuple[AssistantContent, ...] | None:
    """What an answer that was cut goes on from, or None when that cannot be.

    Nothing at all, when the stop came before the model had said anything: the request is then simply made again. Else
    the words that were said, without the note about the cut, for a model that takes them as the beginning of its
    answer. Providers take no reasoning there.
    """
    if not last.cut:
        return None
    said = tuple(part for part in last.content if not isinstance(part, CutNote))
    if not said:
        return ()
    if not prefill or not isinstance(said[-1], Text) or any(isinstance(part, Reasoning | ToolCall) for part in said):
        return None
    return said


def prefill_message(said: tuple[AssistantContent, ...]) -> AssistantMessage:
    """The text so far, as the last message of a request. Providers refuse blank space at its end."""
    *before, end = said
    assert isinstance(end, Text)
    return AssistantMessage((*before, Text(end.text.rstrip(), cut=True, provider_data=end.provider_data)), cut=True)
