"""The promises P1 to P8 as checks on a run that has ended. Each yields what is wrong, in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..cancellation import Mode
from ..conversation.sealing import SENTENCES, faults
from ..events import RunEnded, TextDelta, ToolEnded
from ..interrupts import DENIED, EXPIRED
from ..messages import AssistantMessage, Outcome, Text, ToolMessage, ToolResult
from ..models.scripted import ScriptedModel
from ..result import RunResult
from ..tools.policy import FINAL_GRACE
from ..tools.thread import live_threads
from ..usage.figure import Figure, Provenance
from .scenario import WatchedRun


def violations(watched: WatchedRun) -> list[str]:
    """Everything that is wrong with a run that has ended, whether it was stopped or not."""
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


def late_end(watched: WatchedRun, fired_at: float, allowance: float) -> Iterator[str]:
    """P1: the time, by the loop's clock, from the stop to the end."""
    mode = watched.run.mode
    if watched.ended_at is None or mode is None or mode < Mode.NOW:
        return
    took = watched.ended_at - fired_at
    if took > allowance + 1e-9:
        yield f"P1: the run ended {took:g} s after the stop; {allowance:g} s were allowed"


def grace_now(watched: WatchedRun, mode: str, patience: float) -> float:
    """How long a stop in this instant may take: the longest grace of the tools that run, and no time without any."""
    graces = [0.0 if mode == "kill" else tool.policy.grace for tool in watched.running_tools()]
    return (max(graces) + FINAL_GRACE if graces else 0.0) + patience


def valid(result: RunResult) -> Iterator[str]:
    """P2: the conversation, and that the next prompt may follow it."""
    yield from faults(result.messages)
    if result.messages and not isinstance(result.messages[-1], AssistantMessage):
        yield "a user message could not follow this conversation"


def nothing_lost(watched: WatchedRun, result: RunResult) -> Iterator[str]:
    """P3: every word that was streamed, and the result of every tool that finished."""
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
    if "".join(streamed.split()) != "".join(kept.split()):
        yield f"streamed {streamed!r}, kept {kept!r}"
    announced = {event.result.call_id: event.result for event in watched.events if isinstance(event, ToolEnded)}
    for each in _results(result):
        if result.stop_reason == "interrupt" and each.outcome is not Outcome.COMPLETED:
            continue  # it has not ended: this is only what would be said if nobody answered
        if each != announced.get(each.call_id):
            yield f"the result of {each.call_id} in the conversation is not the one that readers were told"
    finished = Counter(
        each.name for each in _results(result) if each.outcome is Outcome.COMPLETED and not each.is_error
    )
    late = Counter(late.name for late in result.receipt.late if late.ok)
    for name, count in watched.witness.returned.items():
        if watched.agent.active_runs or watched.runs_of_agent() > 1:
            break  # the witness counts for the whole agent
        if finished[name] + late[name] < count:
            yield f"{name} returned {count} times; {finished[name]} results are kept, {late[name]} came late"


def honest(watched: WatchedRun, result: RunResult) -> Iterator[str]:
    """P4: each call has one line on the receipt that says the same as its result, and no result claims too much."""
    lines = {line.call_id: line for line in result.receipt.calls}
    for each in _results(result):
        line = lines.pop(each.call_id, None)
        if line is None or line.outcome != each.outcome:
            yield f"the receipt says {line and line.outcome} of {each.call_id}, the conversation {each.outcome}"
        if each.outcome is not Outcome.COMPLETED and not each.is_error:
            yield f"{each.call_id} is {each.outcome} and does not look like it to the model"
        sentences = (SENTENCES.get(each.outcome, ""), *DENIED.values(), *EXPIRED.values())
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
            and line.name not in watched.witness.unseen
        )
        entered = sum(watched.witness.entered.values())
        if ran != entered:
            yield f"{entered} tools ran, the receipt says {ran}"


def quiet(watched: WatchedRun, result: RunResult) -> Iterator[str]:
    """P5: what is left is what the receipt names. Tasks are checked by whoever knows which were there before."""
    model = watched.agent.config.model
    drained = len(watched.agent.config.drain_pool)  # streams that are read to their end for the bill, and named
    if isinstance(model, ScriptedModel) and model.open_streams > drained and not watched.agent.active_runs:
        yield f"{model.open_streams} model streams are open"
    named = Counter(name.split()[1] for name in result.receipt.still_running if name.startswith("tool "))
    for name in watched.witness.entered:
        inside = watched.witness.inside(name)
        if watched.runs_of_agent() == 1 and inside > named[name]:
            yield f"{inside} calls of {name} still run, the receipt names {named[name]}"
    call_ids = {line.call_id for line in result.receipt.calls if line.outcome is not Outcome.ABANDONED}
    for call in live_threads.copy().values():
        if call.running and any(call.name.endswith(f"-{call_id}-{watched.run.id}") for call_id in call_ids):
            yield f"thread {call.name} still runs"


def accounted(watched: WatchedRun, result: RunResult) -> Iterator[str]:
    """P6: an entry for each request, closed, with figures that can be true."""
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
        yield f"{len(model.requests)} requests were sent, {len(entries)} are booked"


def one_end(watched: WatchedRun, result: RunResult) -> Iterator[str]:
    """P7: one terminal event, the last; a reason that fits what is there."""
    ends = [event for event in watched.events if isinstance(event, RunEnded)]
    if len(ends) != 1 or watched.events[-1] is not ends[0]:
        yield f"{len(ends)} terminal events"
    stopped = result.stop_reason in ("cancelled", "limit")
    if stopped != (result.receipt.cause is not None):
        yield f"stop_reason is {result.stop_reason}, the cause is {result.receipt.cause}"
    last = result.messages[-1] if result.new_messages else None
    done = watched.agent.config.output is None and not result.unsent
    if stopped and done and isinstance(last, AssistantMessage) and not last.cut:
        yield "a finished run is reported as cancelled"
    if result.stop_reason == "end_turn" and isinstance(last, AssistantMessage) and last.cut:
        yield "a cut run is reported as finished"
    if stopped and result.output is not None:
        yield "a stopped run has an output"
    if (result.stop_reason == "interrupt") != bool(result.interrupts):
        yield f"stop_reason is {result.stop_reason}, and {len(result.interrupts)} questions are open"


def _results(result: RunResult) -> Iterator[ToolResult]:
    for message in result.new_messages:
        if isinstance(message, ToolMessage):
            yield from message.results
