"""What is said of a call that has no result of its own: only what is known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ..conversation.sealing import SENTENCES, unfinished
from ..errors import Cancelled, ToolError
from ..messages import Outcome, ToolCall, ToolResult
from .output import describe, failed
from .policy import StopPolicy

if TYPE_CHECKING:
    from ..processes.exit_status import ProcessEnded
    from ..processes.output import CapturedOutput

# Characters of what a stopped call had printed that its result quotes.
_QUOTED: Final = 10_000


def stopped(call: ToolCall, outcome: Outcome, why: str, printed: Iterable[CapturedOutput]) -> ToolResult:
    """The result of a call that was stopped: why, if it was stopped alone, what became of it, what it had printed."""
    sentence = SENTENCES[outcome]
    if why and outcome is Outcome.NEVER_STARTED:
        sentence = f"Not run. {why}"
    elif why:
        sentence = f"{why} {sentence}"
    said = _cut("".join(stream.text for stream in printed))
    if said.strip():
        sentence = f"{sentence}\nBefore that it had printed:\n{said}"
    return unfinished(call, outcome, sentence)


def raised(call: ToolCall, error: BaseException, policy: StopPolicy | None, *, stopping: bool) -> ToolResult:
    """The result of a call whose tool raised."""
    if isinstance(error, Cancelled) and stopping:
        return unfinished(call, Outcome.CANCELLED)
    if isinstance(error, MemoryError) and policy is not None and policy.max_memory is not None:
        return failed(call, f"It needed more memory than its max_memory of {policy.max_memory:,} bytes.")
    return failed(call, str(error) if isinstance(error, ToolError) else describe(error))


def died(call: ToolCall, ended: ProcessEnded, policy: StopPolicy, printed: Iterable[CapturedOutput]) -> ToolResult:
    """The result of a call whose process ended though nobody had asked it to."""
    if ended.exit is None and ended.failure is None:
        return stopped(call, Outcome.UNKNOWN, "Its process ended before anything was heard of it.", printed)
    if ended.exit is None:
        return failed(call, f"Not run: its process could not be started ({ended.failure}).")
    name = ended.exit.signal_name
    if name is None:
        what = f"Its process ended with code {ended.exit.code} before the tool returned."
        said = _cut("".join(stream.text for stream in printed))
        return failed(call, f"{what}\nBefore that it had printed:\n{said}" if said.strip() else what)
    if name == "SIGXCPU" and policy.max_cpu is not None:
        why = f"It used more processor time than its max_cpu of {policy.max_cpu:g} s."
    elif name == "SIGKILL":
        why = "Its process was killed (SIGKILL) by something else, perhaps by the system for lack of memory."
    else:
        why = f"Its process was ended by {name}."
    return stopped(call, Outcome.KILLED, why, printed)


def note(result: ToolResult) -> str:
    """What the receipt says beside the outcome."""
    return "" if result.outcome is Outcome.COMPLETED and not result.is_error else result.text


def _cut(text: str) -> str:
    if len(text) <= _QUOTED:
        return text
    half = _QUOTED // 2
    return f"{text[:half]}\n[... {len(text) - _QUOTED} characters left out ...]\n{text[-half:]}"
