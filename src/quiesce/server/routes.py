"""What each route does. `quiesce.server.endpoint` has let the request in by then; `record` and `desk` do the work."""

from __future__ import annotations

import asyncio
import math
from typing import Any, cast

import anyio
import msgspec
from starlette.responses import Response

from .._version import __version__
from ..conversation.continuation import CONTINUE
from ..interrupts import Approve, Deny
from ..run.handle import Run
from .endpoint import Call, answer
from .problems import Problem
from .registry import Record, RunRegistry
from .schemas import (
    Accepted,
    AgentList,
    AgentView,
    CancelAnswer,
    CancelRun,
    CancelTool,
    Health,
    Nothing,
    ReceiptAnswer,
    ResumeRun,
    RunAnswer,
    RunDetail,
    RunList,
    SessionDetail,
    SessionList,
    StartRun,
    SteerRun,
    ToolView,
)

_LONGEST_KEY = 255
_STATES = ("queued", "running", "stopping", "ended", "crashed")


# --- Runs ----------------------------------------------------------------------------------------------------------


async def start_run(call: Call) -> Response:
    """`POST /runs`."""
    key = call.request.headers.get("idempotency-key")
    if key is not None and not (0 < len(key) <= _LONGEST_KEY and key.isascii() and key.isprintable()):
        raise Problem(422, "bad_idempotency_key", f"An Idempotency-Key has 1 to {_LONGEST_KEY} printable characters.")
    record, is_new = call.desk.start(call.owner, call.body(StartRun), key)
    return answer(RunAnswer(record.view()), 201 if is_new else 200, {"Location": f"runs/{record.id}"})


async def list_runs(call: Call) -> Response:
    """`GET /runs`."""
    state = call.request.query_params.get("state")
    if state is not None and state not in _STATES:
        raise Problem(422, "invalid", f"`state` must be one of: {', '.join(_STATES)}.")
    session = call.request.query_params.get("session")
    limit = int(call.number("limit", int, least=1, most=1000) or 100)
    chosen = (
        record
        for record in call.desk.all(call.owner)
        if (state is None or record.state == state) and (session is None or record.session == session)
    )
    return answer(RunList(tuple(record.view() for record, _ in zip(chosen, range(limit), strict=False))))


async def show_run(call: Call) -> Response:
    """`GET /runs/{id}`."""
    record = call.record
    return answer(RunDetail(record.view(), record.messages, record.receipt))


async def delete_run(call: Call) -> Response:
    """`DELETE /runs/{id}`."""
    call.desk.delete(call.owner, call.request.path_params["id"])
    return Response(status_code=204)


# --- Stopping ------------------------------------------------------------------------------------------------------


async def cancel_run(call: Call) -> Response:
    """`POST /runs/{id}/cancel`: ask for the stop at once; with `?wait=`, stay until it is done."""
    record, wanted = call.record, call.body(CancelRun)
    wait = call.number("wait", float, least=0, most=call.desk.settings.max_wait)
    run = record.run
    if run is None and call.desk.cancel_questions(record):
        return _cancel_answer(record, accepted=True)
    accepted = run is not None and run.cancel(wanted.reason, mode=wanted.mode, source=wanted.source, undo=wanted.undo)
    if run is not None and wait is not None:
        await _at_rest(run, wait)
    return _cancel_answer(record, accepted=accepted)


async def cancel_tool(call: Call) -> Response:
    """`POST /runs/{id}/tools/{call}/cancel`: the run goes on."""
    run, wanted = call.record.run, call.body(CancelTool)
    accepted = run is not None and run.cancel_tool(call.request.path_params["call"], wanted.reason)
    return answer(Accepted(accepted), 202)


def _cancel_answer(record: Record, *, accepted: bool) -> Response:
    return answer(CancelAnswer(accepted, record.view(), record.receipt), 202 if record.receipt is None else 200)


async def _at_rest(run: Run, seconds: float) -> None:
    """Wait for the end of a run, for some time. Giving up here does not touch the run."""
    with anyio.move_on_after(seconds if math.isfinite(seconds) else None):
        await run.stopped()


async def undo_run(call: Call) -> Response:
    """`POST /runs/{id}/undo`: 200 when everything was tried, 202 when that takes longer than the client waits."""
    record = call.record
    call.body(Nothing)
    wait = call.number("wait", float, least=0, most=call.desk.settings.max_wait)
    if record.run is None and record.result is None:
        raise Problem(409, "too_late", "The process that ran this has ended, and with it the way to undo it.")
    if record.result is None:
        raise Problem(409, "running", "The run is still going on.", todo="Stop it first, or stop it with undo: true.")
    undoing = call.desk.undo(record, record.result)
    await asyncio.wait((undoing,), timeout=call.desk.settings.max_wait if wait is None else wait)
    is_done = undoing.done()
    return answer(ReceiptAnswer(record.result.receipt, is_done), 200 if is_done else 202)


# --- Going on ------------------------------------------------------------------------------------------------------


async def steer_run(call: Call) -> Response:
    """`POST /runs/{id}/steer`: the run stops what it does, hears this, and goes on."""
    run, wanted = call.record.run, call.body(SteerRun)
    if run is None or not run.steer(wanted.text):
        raise Problem(409, "too_late", "The run has ended, or is about to.", todo="Start a run with this prompt.")
    return answer(Accepted(accepted=True), 202)


async def resume_run(call: Call) -> Response:
    """`POST /runs/{id}/resume`: what a person was asked is answered, and a new run goes on with it."""
    answers = {each.id: _person_says(each.answer) for each in call.body(ResumeRun).answers}
    if not answers and not call.record.interrupts:
        raise Problem(409, "nothing_asked", "The run asks nothing.", todo="Prompt, or continue it.")
    return answer(RunAnswer(call.desk.go_on(call.record, answers).view()), 201)


async def continue_run(call: Call) -> Response:
    """`POST /runs/{id}/continue`: a new run goes on with the answer that was cut."""
    call.body(Nothing)
    record = call.record
    if record.has_moved_on:
        raise Problem(
            409, "moved_on", "The conversation has gone on since this run.", todo="Continue its latest run, or prompt."
        )
    return answer(RunAnswer(call.desk.go_on(record, CONTINUE).view()), 201)


def _person_says(given: Any) -> Any:
    """`{"type": "approve"}` and `{"type": "deny"}` are what they say; anything else is the answer to a question."""
    kind: Any = cast("dict[str, Any]", given).get("type") if isinstance(given, dict) else None
    if kind not in ("approve", "deny"):
        return cast("Any", given)
    try:
        return msgspec.convert(given, Approve | Deny)
    except msgspec.ValidationError as error:
        raise Problem(422, "invalid", f"An answer cannot be used: {error}.") from None


# --- Sessions ------------------------------------------------------------------------------------------------------


async def list_sessions(call: Call) -> Response:
    """`GET /sessions`."""
    return answer(SessionList(tuple(session.view() for session in call.desk.sessions.all(call.owner))))


async def show_session(call: Call) -> Response:
    """`GET /sessions/{name}`."""
    session = call.desk.sessions.get(call.owner, call.request.path_params["name"])
    runs = tuple(record.view() for record in call.desk.all(call.owner) if record.session == session.name)
    return answer(SessionDetail(session.view(), session.messages, runs))


async def delete_session(call: Call) -> Response:
    """`DELETE /sessions/{name}`."""
    await call.desk.sessions.delete(call.owner, call.request.path_params["name"])
    return Response(status_code=204)


# --- The rest ------------------------------------------------------------------------------------------------------


async def show_usage(call: Call) -> Response:
    """`GET /usage`."""
    return answer(call.desk.usage.report(call.owner, call.desk.all(call.owner)))


async def list_agents(call: Call) -> Response:
    """`GET /agents`."""
    return answer(AgentList(tuple(_agent_view(call.desk, name) for name in call.desk.agents)))


def _agent_view(desk: RunRegistry, name: str) -> AgentView:
    config = desk.agents[name].config
    tools = (
        ToolView(tool.name, tool.description, str(tool.policy.on_stop), tool.policy.grace)
        for tool in config.tools.values()
    )
    return AgentView(name, config.model.name, tuple(tools))


def health(desk: RunRegistry) -> Response:
    """`GET /healthz`, for load balancers: no key is needed, and 503 means that new runs should go elsewhere."""
    state = Health("draining" if desk.draining else "ok", len(desk.active), __version__)
    return answer(state, 503 if desk.draining else 200)
