"""The limits of a run: where they are counted, and what is done when one is reached (`on_limit`).

A limit is reached before a turn, before tools run, or inside an answer, which is then cut. With "stop" the run stops
there. With "answer" the model is called once more, without tools. With "ask" the turn is kept beside the conversation
until a person raises the limit.
"""

from __future__ import annotations

import time
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import Any, Final, cast

from msgspec.structs import replace

from ..billing.meter import Budget, Meter
from ..billing.request_bill import RequestBill
from ..cancellation import Cause, Mode
from ..conversation.continuation import continued
from ..events import InterruptRaised, MessageAdded
from ..interrupts import Interrupt, PendingLimit, PendingTurn
from ..limits import LimitName, Limits, ReachedLimit
from ..messages import AssistantMessage, Text, UserMessage
from ..phases import Phase
from ..receipt import LimitUse
from .final_answer import parse_output
from .output import OutputMismatch
from .repetition import repetition
from .state import RunState

# The instruction of the last request, at on_limit="answer".
LAST_ANSWER: Final = (
    "A limit of this run is reached ({words}). No more tools can be used. "
    "Give your final answer now, from what you know, and say what is missing."
)
# The user message before the last answer, where the answer that reached the limit was cut.
LAST_PROMPT: Final = "Your answer was cut, because a limit is reached. Give your final answer now, briefly."


# --- Counting --------------------------------------------------------------------------------------------------------


def may_begin_turn(state: RunState) -> bool:
    """Whether the limits allow one more turn; counts it then. The run is to settle otherwise."""
    reached = state.spending.reached
    if reached is None and within_repetitions(state) and within_limits(state, turns=1):
        return True
    reached = state.spending.reached
    if reached is None or state.token.cancelled or state.config.on_limit == "stop":
        return False
    if state.config.on_limit == "ask":
        state.progress.finish("interrupt")
        return False
    return within_limits(state, turns=1, above=True) and _begin_last_answer(state)


def within_limits(state: RunState, *, turns: int = 0, tool_calls: int = 0, above: bool = False) -> bool:
    """Count against the limits of this run and of those above it, which all that is below them shares.

    Whether they allow it. The run whose limit is reached is the one that acts on it. With `above`, only the limits of
    the runs above count.
    """
    lineage = state.family.lineage
    for each in lineage[1:] if above else lineage:
        limits, used = each.config.limits, each.spending.budget_use
        if turns and limits.turns is not None and used.turns + turns > limits.turns:
            words = f"The limit of {limits.turns} turns is reached{_shared_with(each, state)}"
            reach(each, state, ReachedLimit("turns", limits.turns, used.turns, words))
            return False
        if tool_calls and limits.tool_calls is not None and used.tool_calls + tool_calls > limits.tool_calls:
            words = f"The limit of {limits.tool_calls} tool calls is reached{_shared_with(each, state)}"
            if used.tool_calls < limits.tool_calls:
                words += f": {used.tool_calls} were made, and the model asks for {tool_calls} more"
            reach(each, state, ReachedLimit("tool_calls", limits.tool_calls, used.tool_calls, words))
            return False
    _add(lineage, turns, tool_calls)
    return True


def _shared_with(limited: RunState, state: RunState) -> str:
    """Which other runs have used the same limit, for people."""
    if limited is not state:
        return ", with those of the runs below"
    is_joined = limited.claim.task is not None and limited.claim.task.is_joined
    return ", with those of the earlier runs of the task" if is_joined else ""


def within_repetitions(state: RunState) -> bool:
    """Whether the run still makes progress: its last turns were not all the same."""
    limit, settled = state.config.limits.repeated_calls, state.turn.view.settled
    if limit is None or len(settled) < 2 * limit:  # a turn with tools is two messages
        return True
    found = repetition(settled, limit)
    if found.times < limit:
        return True
    tools = f"{'The tool' if len(found.tools) == 1 else 'The tools'} {', '.join(found.tools)}"
    words = f"{tools} gave the same result to the same call {limit} times in a row: the run makes no progress"
    todo = "Change the prompt or the tool, or raise Limits(repeated_calls=...)"
    reach(state, state, ReachedLimit("repeated_calls", limit, found.times, words, todo))
    return False


def count(state: RunState, *, turns: int = 0, tool_calls: int = 0) -> None:
    """Write down what was begun, for this run and those above it."""
    _add(state.family.lineage, turns, tool_calls)


def _add(lineage: tuple[RunState, ...], turns: int, tool_calls: int) -> None:
    for each in lineage:
        each.spending.budget_use.turns += turns
        each.spending.budget_use.tool_calls += tool_calls
        if each.claim.task is not None and each.saving.journal is not None:
            each.claim.task.save()


async def build_meter(state: RunState, bill: RequestBill) -> Meter | None:
    """The meter for this answer, once it can count in the model's vocabulary.

    None when no limit of this run or of a run above it can be reached inside an answer. An answer in a slow vocabulary
    is counted while it is streamed, even without a limit. The last answer of a run that has reached its limit is not
    cut by that limit.
    """
    budgets = tuple(
        Budget(
            each.config.limits,
            each.spending.budget_use,
            partial(reach, each, state),
            "The run" if each is state else "The run and its children",
        )
        for each in state.family.lineage
        if each.config.limits.inside_answers and not each.spending.last_answer
    )
    if not budgets and not bill.terms.estimator.counts_slowly:
        return None
    await bill.terms.estimator.loaded()
    await bill.terms.estimator.price_known()
    return Meter(bill.entry_id, budgets, bill.terms.estimator.price, bill.answer_counter(), bill.input_estimate())


def limit_uses(state: RunState) -> tuple[LimitUse, ...]:
    """The limits of the run and what it has used of them, for the receipt."""
    used, reached = state.spending.budget_use, state.spending.reached
    amounts: dict[str, int | Decimal] = {
        "turns": used.turns,
        "tool_calls": used.tool_calls,
        "tokens": used.input + used.output,
        "output_tokens": used.output,
        "cost": used.cost,
    }
    if reached is not None:  # in an answer, the limit may be reached by a rougher count than that of the receipt
        amounts["repeated_calls"] = 0
        amounts[reached.name] = max(reached.used, amounts[reached.name])
    stopped_at = None if reached is None else reached.name
    uses = [
        LimitUse(name, str(allowed), str(amounts.get(name, "")), name == stopped_at)
        for name, allowed in state.config.limits.values.items()
    ]
    return tuple(uses)


# --- Reaching one ----------------------------------------------------------------------------------------------------


def reach(limited: RunState, state: RunState, reached: ReachedLimit) -> None:
    """Act on a limit of `limited` that `state` has reached, which is `limited` or a run below it. In the loop.

    A run with on_limit="answer" or "ask" is not stopped: the answer under way is cut, or the runs below are stopped,
    and the run acts on the limit before its next step.
    """
    if limited.spending.reached is None:
        limited.spending.reached = reached
    if limited.config.on_limit == "stop":
        limited.token.cancel(reached.reason, source="budget", mode=Mode.NOW)
    elif limited is not state:
        for child in limited.family.living:
            child.handle.cancel(reached.reason, source="budget")
    elif state.progress.phase in (Phase.CALLING, Phase.STREAMING):
        state.progress.work_token.cancel(reached.reason, source="budget", mode=Mode.NOW)


def _begin_last_answer(state: RunState) -> bool:
    """The next answer is the last one, and has no tools."""
    state.spending.last_answer = True
    last = state.turn.view.settled[-1]
    if isinstance(last, AssistantMessage):  # the answer that reached the limit was cut
        if continued(last, prefill=False) is not None:
            state.turn.go_on_from(())
        else:
            message = UserMessage((Text(LAST_PROMPT),))
            state.turn.add_prompt(message)
            state.events.push(MessageAdded(message))
    return True


def last_answer_note(state: RunState, instructions: str | None) -> str:
    """The instructions of the last request: they say that there are no more tools."""
    assert state.spending.reached is not None
    note = LAST_ANSWER.format(words=state.spending.reached.words)
    return note if instructions is None else f"{instructions}\n\n{note}"


def finish_last_answer(state: RunState) -> None:
    """End the run with its last answer, if it fits the wanted type also as the output. A stop now comes too late."""
    output: tuple[Any, ...] = ()
    assert state.spending.reached is not None
    state.spending.cause = Cause("budget", state.spending.reached.reason, Mode.AFTER_TURN)
    with suppress(OutputMismatch):  # there is no request left in which to ask for another one
        output = parse_output(state)
    state.progress.finish("limit", output)


def was_cut_by_limit(state: RunState) -> bool:
    """Whether a limit of this run, and not a prompt, has cut the answer under way."""
    in_answer = state.progress.phase in (Phase.CALLING, Phase.STREAMING, Phase.ANSWERED)
    return in_answer and state.spending.reached is not None and state.progress.work_token.cancelled


# --- Asking a person -------------------------------------------------------------------------------------------------


def suspend_at_limit(state: RunState, reached: ReachedLimit) -> None:
    """Keep the turn beside the conversation until a person has raised the limit. No waiting in here."""
    builder, batch = state.turn.view.builder, state.turn.view.batch
    state.spending.close_entry("completed" if builder is not None and builder.complete else "hung_up")
    state.tools.torn_calls += builder.torn_calls() if builder is not None else ()
    limit = _pending_limit(state, reached)
    answer = state.turn.answer or AssistantMessage((), cut=True)
    calls = () if batch is None else batch.pending()
    pending = PendingTurn(state.run_id, answer, calls, handed=state.config.handoffs, limit=limit)
    state.turn.suspend(pending, state.config.cut_note)
    state.events.push(InterruptRaised(limit.interrupt))


def _pending_limit(state: RunState, reached: ReachedLimit) -> PendingLimit:
    before = state.spending.resumed
    interrupt = Interrupt(
        f"limit:{state.run_id}",
        f"limit:{reached.name}",
        "limit",
        call_id="",
        tool_name="",
        arguments={},
        reason={
            "limit": reached.name,
            "allowed": str(reached.allowed) if reached.name == "cost" else reached.allowed,
            "used": str(reached.used) if reached.name == "cost" else reached.used,
            "message": reached.reason,
        },
        asked_at=time.time(),
    )
    allowed = Decimal(reached.allowed)
    return PendingLimit(
        interrupt,
        reached.name,
        allowed,
        {reached.name: allowed} | ({} if before is None else before.steps),  # what it was before it was ever raised
        reached.reason,
        state.spending.budget_use.used(),
        {name: Decimal(value) for name, value in state.config.limits.values.items()},
        {} if before is None else before.raised,
    )


def resume_at_limit(state: RunState, limit: PendingLimit) -> None:
    """Count from what the earlier run has used, with the raised limits; or stop, when the person said no.

    The limits are those of the earlier run, and a person is asked again, unless the call says otherwise.
    """
    state.spending.budget_use.begin_with(limit.used)
    state.spending.resumed = limit
    given = state.claim.input
    limits = (given.limits or Limits.of(limit.limits)).raised(limit.raised)
    state.config = replace(state.config, limits=limits, on_limit=given.on_limit or "ask")
    if limit.refused:
        used = Decimal(str(limit.interrupt.reason["used"]))
        state.spending.reached = ReachedLimit(cast("LimitName", limit.name), limit.allowed, used, limit.words)
        state.token.cancel(limit.words, source="budget")


def goes_on_with_tools(pending: PendingTurn) -> bool:
    """Whether the pending answer is complete, so that its tools are what follows."""
    return bool(pending.answer.tool_calls) and not pending.answer.cut
