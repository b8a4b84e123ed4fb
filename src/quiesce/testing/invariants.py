"""The promises P1 to P7 as checks of a run that has ended. Each check yields a sentence for each fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from ..cancellation import Mode
from ..conversation.sealing import BESIDE_A_QUESTION, LIMIT_CAME_FIRST, SENTENCES
from ..conversation.validity import faults
from ..events import RunEnded, TextDelta, ToolEnded
from ..interrupts import DENIED, EXPIRED, NOT_ANSWERED
from ..messages import AssistantMessage, Outcome, Text, ToolMessage, ToolResult
from ..models.scripted import ScriptedModel
from ..result import RunResult
from ..tools.policy import FINAL_GRACE
from ..tools.thread import live_threads
from ..usage.figure import Figure, Provenance
from .scenario import WatchedRun

# What the result of a call that did not complete may say, besides the sentence of its outcome.
_WITHOUT_AN_ANSWER: Final = (
    *DENIED.values(), *EXPIRED.values(), *NOT_ANSWERED.values(), BESIDE_A_QUESTION, LIMIT_CAME_FIRST,
)  # fmt: skip


def violations(watched: WatchedRun) -> list[str]:
    """The faults of a run that has ended, stopped or not: one sentence each."""
    result = watched.run.inspect().result
    if result is None or not watched.run.done:
        return [f"P1: run {watched.run.id} has not ended ({watched.run.phase})"]
    return [
        *(f"P2: {fault}" for fault in valid(result)),
        *(f"P3: {fault}" for fault in nothing_lost(watched, result)),
        *(f"P4: {fault}" for fault in honest(watched, result)),
        *(f"P5: {fault}" for fault in quiet(watched, result)),
        *(f"P6: {fault}" for fault in accounted(watched, result)),
        *(f"P7: {fault}" for fault in one_end(watched, result)),
    ]


def late_end(watched: WatchedRun, injected_at: float, allowance: float) -> Iterator[str]:
    """P1: the time from the stop to the end, by the clock of the loop, is within the allowance."""
    mode = watched.run.mode
    if watched.ended_at is None or mode is None or mode < Mode.NOW:
        return
    took = watched.ended_at - injected_at
    if took > allowance + 1e-9:
        yield f"P1: the run ended {took:g} s after the stop; {allowance:g} s were allowed"


def grace_now(watched: WatchedRun, mode: str, extra_time: float) -> float:
    """How long a stop may take now: the longest grace of the running tools (0 without any), and the extra time."""
    graces = [0.0 if mode == "kill" else tool.policy.grace for tool in watched.running_tools()]
    return (max(graces) + FINAL_GRACE if graces else 0.0) + extra_time


def valid(result: RunResult) -> Iterator[str]:
    """P2: the conversation is valid, and a user message may follow it."""
    yield from faults(result.messages)
    if result.messages and not isinstance(result.messages[-1], AssistantMessage):
        yield "a user message could not follow this conversation"


def nothing_lost(watched: WatchedRun, result: RunResult) -> Iterator[str]:
    """P3: the conversation has all streamed text, and the result of each tool that finished."""
    streamed = watched.run.inspect().continued_text
    streamed += "".join(event.text for event in watched.events if isinstance(event, TextDelta))
    spoken = (
        part.text
        for message in result.new_messages
        if isinstance(message, AssistantMessage)
        for part in message.content
        if isinstance(part, Text)
    )
    kept = "".join(spoken)
    before, after = "".join(streamed.split()), "".join(kept.split())
    # With a store, readers get what is saved. A loop that was closed, or a journal that failed, has not told them of
    # the last part.
    untold = (watched.loop_is_closed and result.receipt.saved is not None) or result.receipt.saved is False
    untold = untold or watched.interrupted
    if before != after and not (untold and after.startswith(before)):
        yield f"streamed {streamed!r}, kept {kept!r}"
    announced = {event.result.call_id: event.result for event in watched.events if isinstance(event, ToolEnded)}
    for each in _results(result):
        if result.stop_reason == "interrupt" and each.outcome is not Outcome.COMPLETED:
            continue  # the call is pending: its result is a placeholder until the interrupt is answered
        if each != announced.get(each.call_id) and not untold:
            yield f"the result of {each.call_id} in the conversation is not the one in the event `ToolEnded`"
    finished = Counter(
        each.name for each in _results(result) if each.outcome is Outcome.COMPLETED and not each.is_error
    )
    late = Counter(late.name for late in result.receipt.late if late.ok)
    for name, count in watched.tool_log.returned.items():
        if watched.agent.active_runs or watched.runs_of_agent() > 1:
            break  # the log counts the calls of all runs of the agent
        if finished[name] + late[name] < count:
            yield f"{name} returned {count} times; {finished[name]} results are kept, {late[name]} came late"


def honest(watched: WatchedRun, result: RunResult) -> Iterator[str]:
    """P4: each call has one line in the receipt, with the outcome of its result, and the outcome is true."""
    lines = {line.call_id: line for line in result.receipt.calls}
    for each in _results(result):
        line = lines.pop(each.call_id, None)
        if line is None or line.outcome != each.outcome:
            yield f"the receipt says {line and line.outcome} of {each.call_id}, the conversation {each.outcome}"
        if each.outcome is not Outcome.COMPLETED and not each.is_error:
            yield f"{each.call_id} is {each.outcome} and does not look like it to the model"
        sentences = (SENTENCES.get(each.outcome, ""), *_WITHOUT_AN_ANSWER)
        if each.outcome is not Outcome.COMPLETED and not any(sentence in each.text for sentence in sentences):
            yield f"{each.call_id} is {each.outcome} and says {each.text!r}"
    for line in lines.values():
        if line.outcome is not Outcome.NEVER_STARTED:
            yield f"the receipt has {line.call_id} ({line.outcome}), the conversation has not"
    if watched.runs_of_agent() == 1:
        ran = sum(
            1
            for line in result.receipt.calls
            if line.outcome is not Outcome.NEVER_STARTED
            and line.seconds is not None
            and line.name not in watched.tool_log.unseen
        )
        entered = sum(watched.tool_log.entered.values())
        if ran != entered and not (watched.interrupted and ran > entered):
            yield f"{entered} tools ran, the receipt says {ran}"


def quiet(watched: WatchedRun, result: RunResult) -> Iterator[str]:
    """P5: streams, tool calls and threads that are left are named in the receipt. `Trial` checks the tasks."""
    model = watched.agent.config.model
    # Streams that are read to their end for the usage; the receipt names them.
    drained = len(watched.agent.config.drain_pool)
    if isinstance(model, ScriptedModel) and model.open_streams > drained and not watched.agent.active_runs:
        yield f"{model.open_streams} model streams are open"
    named = Counter(name.split()[1] for name in result.receipt.still_running if name.startswith("tool "))
    if watched.loop_is_closed:  # a tool that cannot run on is not running, and its outcome says that it is not known
        named.update(line.name for line in result.receipt.calls if line.outcome is Outcome.UNKNOWN)
    for name in watched.tool_log.entered:
        inside = watched.tool_log.inside(name)
        if watched.runs_of_agent() == 1 and inside > named[name]:
            yield f"{inside} calls of {name} still run, the receipt names {named[name]}"
    call_ids = {line.call_id for line in result.receipt.calls if line.outcome is not Outcome.ABANDONED}
    for call in live_threads.copy().values():
        if call.running and any(call.name.endswith(f"-{call_id}-{watched.run.id}") for call_id in call_ids):
            yield f"thread {call.name} still runs"


def accounted(watched: WatchedRun, result: RunResult) -> Iterator[str]:
    """P6: each request has a closed entry, and its figures lie in their intervals."""
    entries = result.usage.entries
    for entry in entries:
        if entry.ended == "open":
            yield f"entry {entry.id} was never closed"
        for name in entry.usage.__struct_fields__:
            figure: Figure = getattr(entry.usage, name)
            high = float("inf") if figure.high is None else figure.high
            if not figure.low <= (figure.low if figure.value is None else figure.value) <= high:
                yield f"entry {entry.id}: {name} is {figure}"
            if figure.value == 0 and figure.source is Provenance.UNKNOWN:
                yield f"entry {entry.id}: {name} is unknown and reads 0"
    model = watched.agent.config.model
    if isinstance(model, ScriptedModel) and watched.runs_of_agent() == 1 and len(model.requests) > len(entries):
        yield f"{len(model.requests)} requests were sent, {len(entries)} are in the ledger"


def one_end(watched: WatchedRun, result: RunResult) -> Iterator[str]:
    """P7: there is one terminal event, the last one, and the stop reason fits the messages."""
    ends = [event for event in watched.events if isinstance(event, RunEnded)]
    if len(ends) != 1 or watched.events[-1] is not ends[0]:
        yield f"{len(ends)} terminal events"
    stopped = result.stop_reason in ("cancelled", "limit")
    if stopped != (result.receipt.cause is not None):
        yield f"stop_reason is {result.stop_reason}, the cause is {result.receipt.cause}"
    last = result.messages[-1] if result.new_messages else None
    done = watched.agent.config.output is None and not result.unsent
    may_answer = watched.agent.config.on_limit == "answer" and result.stop_reason == "limit"
    if stopped and done and not may_answer and isinstance(last, AssistantMessage) and not last.cut:
        yield "a finished run is reported as cancelled"
    if result.stop_reason == "end_turn" and isinstance(last, AssistantMessage) and last.cut:
        yield "a cut run is reported as finished"
    if stopped and result.parsed:
        yield "a stopped run has an output"
    if (result.stop_reason == "interrupt") != bool(result.interrupts):
        yield f"stop_reason is {result.stop_reason}, and {len(result.interrupts)} questions are open"


def _results(result: RunResult) -> Iterator[ToolResult]:
    for message in result.new_messages:
        if isinstance(message, ToolMessage):
            yield from message.results
