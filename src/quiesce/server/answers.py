"""The answers of a request: approvals that are remembered for later calls, and entries in the audit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..interrupts import Interrupt, answer_records
from ..tools.approval import fingerprint
from .endpoint import ApiRequest
from .problems import Problem
from .registry import ServedRun
from .schemas import Answer, AuditAction, StandingApproval

_ACTIONS: dict[str, AuditAction] = {"approved": "approve", "denied": "deny", "answered": "answer"}


async def remember_answers(
    request: ApiRequest, given: Sequence[Answer], answers: Mapping[str, Any], asked: Mapping[str, Interrupt]
) -> list[StandingApproval]:
    """Add the approvals that count for later calls, and take back those that cover a call that is denied now.

    Raises `Problem` for an approval that cannot be remembered, or a `StoreError`; then nothing is added.
    """
    approvals, run = request.services.records.approvals, request.run
    decided = {each.interrupt_id: each.decision for each in answer_records(asked.values(), answers, request.owner)}
    for interrupt in asked.values():
        if interrupt.kind == "approval" and decided.get(interrupt.id) == "denied":
            for taken in await approvals.take_back_like(run.info, interrupt):
                request.note("disallow", run, f"{taken.tool} ({taken.id})")
    wanted = [(each.remember, each.id) for each in given if each.remember is not None]
    if any(decided.get(interrupt_id) != "approved" for _, interrupt_id in wanted):
        raise Problem(422, "cannot_be_remembered", "Only the approval of a call can be remembered.")
    added: list[StandingApproval] = []
    try:
        for remember, interrupt_id in wanted:
            interrupt = asked[interrupt_id]
            added.append(await approvals.add(run.info, interrupt, remember, _definition(run, interrupt)))
    except BaseException:
        await forget_approvals(request, added)
        raise
    return added


async def forget_approvals(request: ApiRequest, approvals: Iterable[StandingApproval]) -> None:
    """Take back approvals whose answer was not accepted."""
    for approval in approvals:
        await request.services.records.approvals.take_back(request.owner, approval.id)


def note_answers(
    request: ApiRequest,
    answers: Mapping[str, Any],
    asked: Mapping[str, Interrupt],
    added: Iterable[StandingApproval],
) -> None:
    """Note in the audit what was answered."""
    for record in answer_records(asked.values(), answers, request.owner):
        changed = " with other arguments" if record.arguments is not None else ""
        detail = f"{record.tool_name}{changed}: {record.reason}" if record.reason else record.tool_name + changed
        request.note(_ACTIONS[record.decision], request.run, detail)
    for approval in added:
        request.note("allow", request.run, f"{approval.tool} ({approval.id})")


def _definition(run: ServedRun, interrupt: Interrupt) -> str:
    """The definition of the tool that a call is asked about: that of the moment when it was asked."""
    pending = run.conversation.pending
    call = None if pending is None else pending.call(interrupt.call_id)
    if call is not None and call.fingerprint is not None:
        return call.fingerprint
    tool = run.info.agent.config.tools.get(interrupt.tool_name)
    if tool is None:
        message = "The approval is asked by another agent, below this one. It cannot be remembered."
        raise Problem(422, "cannot_be_remembered", message)
    return fingerprint(tool)
