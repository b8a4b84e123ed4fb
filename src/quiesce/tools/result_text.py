"""Results for calls whose tool gave none: they were stopped, they raised, or their process died.

They say only what is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ..conversation.sealing import SENTENCES, unfinished
from ..errors import Cancelled, ToolError
from ..messages import Outcome, ToolCall, ToolResult
from .output import describe_error, failed_result
from .policy import ToolStopPolicy

if TYPE_CHECKING:
    from ..processes.exit_status import ProcessEnded
    from ..processes.output import CapturedOutput

# The characters of a stopped call's output that its result quotes.
_MAX_QUOTED: Final = 10_000


def stopped_result(call: ToolCall, outcome: Outcome, reason: str, streams: Iterable[CapturedOutput] = ()) -> ToolResult:
    """The result of a call that was stopped: the outcome, the output so far, and `reason` if it was stopped alone."""
    sentence = SENTENCES[outcome]
    if reason and outcome is Outcome.NEVER_STARTED:
        sentence = f"Not run. {reason}"
    elif reason:
        sentence = f"{reason} {sentence}"
    return unfinished(call, outcome, _with_output(sentence, streams) if streams else sentence)


def raised_result(call: ToolCall, error: BaseException, policy: ToolStopPolicy | None, *, stopping: bool) -> ToolResult:
    """The result of a call whose tool raised."""
    if isinstance(error, Cancelled) and stopping:
        return unfinished(call, Outcome.CANCELLED)
    if isinstance(error, MemoryError) and policy is not None and policy.max_memory is not None:
        return failed_result(call, f"It needed more memory than its max_memory of {policy.max_memory:,} bytes.")
    return failed_result(call, str(error) if isinstance(error, ToolError) else describe_error(error))


def process_ended_result(
    call: ToolCall, ended: ProcessEnded, policy: ToolStopPolicy, streams: Iterable[CapturedOutput]
) -> ToolResult:
    """The result of a call whose process ended without a stop."""
    if ended.exit is None and ended.failure is None:
        return stopped_result(call, Outcome.UNKNOWN, "Its process ended before it reported anything.", streams)
    if ended.exit is None:
        return failed_result(call, f"Not run: its process could not be started ({ended.failure}).")
    name = ended.exit.signal_name
    if name is None:
        what = f"Its process ended with code {ended.exit.code} before the tool returned."
        return failed_result(call, _with_output(what, streams))
    if name == "SIGXCPU" and policy.max_cpu is not None:
        why = f"It used more processor time than its max_cpu of {policy.max_cpu:g} s."
    elif name == "SIGKILL":
        why = "Its process was killed (SIGKILL) by something else, perhaps by the system for lack of memory."
    else:
        why = f"Its process was ended by {name}."
    return stopped_result(call, Outcome.KILLED, why, streams)


def succeeded(result: ToolResult) -> bool:
    """Whether the tool came to its own end without an error."""
    return result.outcome is Outcome.COMPLETED and not result.is_error


def _with_output(sentence: str, streams: Iterable[CapturedOutput]) -> str:
    output = without_middle("".join(stream.text for stream in streams), _MAX_QUOTED)
    return f"{sentence}\nBefore that it had printed:\n{output}" if output.strip() else sentence


def without_middle(text: str, kept: int, how_to_read: str = "") -> str:
    """The beginning and the end of a text that is longer than `kept`, with a note on what is left out between them."""
    if len(text) <= kept:
        return text
    half = kept // 2
    note = f"[... {len(text) - 2 * half:,} of {len(text):,} characters left out{how_to_read} ...]"
    return f"{text[:half]}\n{note}\n{text[-half:]}"
