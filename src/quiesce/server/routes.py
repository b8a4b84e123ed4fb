"""The handlers of the routes. `quiesce.server.endpoint` has authenticated the request and read its body."""

from __future__ import annotations

import asyncio
import math
from datetime import date
from typing import Any, cast, get_args

import anyio
import msgspec
from starlette.responses import Response

from .._version import __version__
from ..agent import AnyAgent
from ..interrupts import Approve, Deny
from ..run.handle import Run
from . import schemas
from .answers import forget_approvals, note_answers, remember_answers
from .endpoint import ApiRequest, json_response
from .problems import Problem, no_such_session
from .registry import ServedRun
from .run_filter import run_filter
from .services import Services
from .usage import UsageFilter, report_by_key, used_run

_MAX_KEY_LENGTH = 255


# --- Runs ----------------------------------------------------------------------------------------------------------


async def start_run(request: ApiRequest) -> Response:
    """`POST /runs`."""
    response, run = await _start_run(request)
    if run is not None:
        request.note("start", run, run.info.prompt)
    return response


async def _start_run(request: ApiRequest) -> tuple[Response, ServedRun | None]:
    """The response, and the run if it is new."""
    key = idempotency_key(request)
    body, services = request.body(schemas.StartRun), request.services
    earlier = await services.starter.started_earlier(request.owner, body, key)
    if earlier is not None:
        return json_response(schemas.RunAnswer(earlier.view()), 200, {"Location": f"runs/{earlier.id}"}), None
    agent = services.agents.get(body.agent)
    options = await services.deps.options(request.http, request.owner, agent, body.session)
    run, is_new = services.starter.start(request.owner, body, key, options)
    if is_new and body.on_busy == "refuse" and services.sessions.are_stored:
        await services.starter.check_begun(run)
    answer = json_response(schemas.RunAnswer(run.view()), 201 if is_new else 200, {"Location": f"runs/{run.id}"})
    return answer, run if is_new else None


def idempotency_key(request: ApiRequest) -> str | None:
    """The Idempotency-Key of a request. Raises `Problem` for one that is not valid."""
    key = request.http.headers.get("idempotency-key")
    if key is not None and not (0 < len(key) <= _MAX_KEY_LENGTH and key.isascii() and key.isprintable()):
        message = f"An Idempotency-Key has 1 to {_MAX_KEY_LENGTH} printable characters."
        raise Problem(422, "bad_idempotency_key", message)
    return key


async def list_runs(request: ApiRequest) -> Response:
    """`GET /runs`."""
    wanted = run_filter(request)
    chosen = [run for run in request.services.runs.newest_first(request.owner) if wanted.takes(run)]
    shown, more = wanted.page(chosen, lambda run: (run.info.created_at, run.id))
    return json_response(schemas.RunList(tuple(run.view(live=True) for run in shown), more))


async def show_run(request: ApiRequest) -> Response:
    """`GET /runs/{id}`."""
    run = request.run
    return json_response(schemas.RunDetail(run.view(live=True), run.messages, run.receipt))


async def delete_run(request: ApiRequest) -> Response:
    """`DELETE /runs/{id}`."""
    run = request.run
    await request.services.history.delete_run(run)
    request.note("delete_run", run, run.info.prompt)
    return Response(status_code=204)


# --- Stopping ------------------------------------------------------------------------------------------------------


async def cancel_run(request: ApiRequest) -> Response:
    """`POST /runs/{id}/cancel`: ask for the stop at once; with `?wait=`, stay until it is done."""
    served, body, wait = request.run, request.body(schemas.CancelRun), request.wait_seconds()
    run = served.run
    if run is None and served.interrupts:
        if body.undo:  # this also withdraws the questions
            longest = request.services.settings.max_wait if wait is None else wait
            await asyncio.wait((request.services.undos.start(served),), timeout=longest)
        else:
            served.cancel_interrupts()
        request.services.run_lists.run_changed(served)
        request.note("withdraw", served, body.reason)
        return _cancel_response(served, accepted=True)
    accepted = run is not None and run.cancel(body.reason, mode=body.mode, source=body.source, undo=body.undo)
    if accepted:
        request.note("stop", served, f"{body.mode}: {body.reason}" if body.reason else str(body.mode))
    if run is not None and wait is not None:
        await _wait_for_end(run, wait)
    return _cancel_response(served, accepted=accepted)


async def cancel_tool(request: ApiRequest) -> Response:
    """`POST /runs/{id}/tools/{call}/cancel`: the run goes on."""
    run, body, call = request.run.run, request.body(schemas.CancelTool), request.http.path_params["call"]
    accepted = run is not None and run.cancel_tool(call, body.reason)
    if accepted:
        request.note("stop_tool", request.run, f"{call}: {body.reason}" if body.reason else call)
    return json_response(schemas.Accepted(accepted), 202)


def _cancel_response(run: ServedRun, *, accepted: bool) -> Response:
    return json_response(schemas.CancelAnswer(accepted, run.view(), run.receipt), 202 if run.receipt is None else 200)


async def _wait_for_end(run: Run, seconds: float) -> None:
    """Wait for the end of a run, for some time. Giving up here does not touch the run."""
    with anyio.move_on_after(seconds if math.isfinite(seconds) else None):
        await run.stopped()


async def undo_run(request: ApiRequest) -> Response:
    """`POST /runs/{id}/undo`: 200 when everything was tried, 202 when that takes longer than the client waits."""
    served = request.run
    request.body(schemas.Nothing)
    wait = request.wait_seconds()
    if served.run is not None:
        raise Problem(409, "running", "The run has not ended.", todo="Stop it first, or stop it with undo: true.")
    undo = request.services.undos.start(served)
    request.note("undo", served)
    await asyncio.wait((undo,), timeout=request.services.settings.max_wait if wait is None else wait)
    is_done = undo.done()
    if is_done:
        undo.result()  # a conversation that is busy, or a store that does not answer, is a problem of the request
    assert served.receipt is not None
    return json_response(schemas.ReceiptAnswer(served.receipt, is_done), 200 if is_done else 202)


# --- Going on ------------------------------------------------------------------------------------------------------


async def steer_run(request: ApiRequest) -> Response:
    """`POST /runs/{id}/steer`: the run stops its current work, gets this prompt, and goes on."""
    run, body = request.run.run, request.body(schemas.SteerRun)
    if run is None or not run.steer(body.text):
        raise Problem(409, "too_late", "The run has ended or is about to end.", todo="Start a run with this prompt.")
    request.note("steer", request.run, body.text)
    return json_response(schemas.Accepted(accepted=True), 202)


async def pause_run(request: ApiRequest) -> Response:
    """`POST /runs/{id}/pause`: the run waits before its next step, or goes on."""
    run, body = request.run.run, request.body(schemas.PauseRun)
    if run is None or run.cause is not None:
        raise Problem(409, "too_late", "The run has ended or is being stopped.")
    changed = run.paused != body.paused
    if changed:
        _ = run.pause() if body.paused else run.resume()
        request.note("pause" if body.paused else "unpause", request.run)
        request.services.run_lists.run_changed(request.run)
    return json_response(schemas.Accepted(changed), 202)


async def resume_run(request: ApiRequest) -> Response:
    """`POST /runs/{id}/resume`: the answers to approvals and questions, for a new run or for the one that goes on."""
    given = request.body(schemas.ResumeRun).answers
    answers = {each.id: parse_answer(each.answer) for each in given}
    if not answers and not request.run.interrupts:
        raise Problem(409, "nothing_asked", "The run has no pending question.", todo="Send a prompt, or continue it.")
    runs, conversation = request.services.runs, request.run.conversation
    holder = None if conversation.holder is None else runs.find(conversation.holder)
    await request.services.starter.wait_for_begin(holder)
    asked = {each.id: each for run in (holder, request.run) if run is not None for each in run.interrupts}
    added = await remember_answers(request, given, answers, asked)
    try:
        response = await _follow_up(request, answers)
    except BaseException:  # the answers were not accepted, so their approvals do not count later
        await forget_approvals(request, added)
        raise
    note_answers(request, answers, asked, added)
    return response


async def continue_run(request: ApiRequest) -> Response:
    """`POST /runs/{id}/continue`: a new run goes on with the answer that was cut."""
    request.body(schemas.Nothing)
    run = request.run
    if run.has_moved_on:
        raise Problem(
            409, "moved_on", "The conversation has newer messages.", todo="Continue its latest run, or send a prompt."
        )
    response = await _follow_up(request, None)
    request.note("continue", run)
    return response


async def _follow_up(request: ApiRequest, answers: dict[str, Any] | None) -> Response:
    services, info = request.services, request.run.info
    options = await services.deps.options(request.http, request.owner, info.agent, info.session)
    run, is_new = services.starter.follow_up(request.run, answers, options)
    if is_new:
        await services.starter.check_begun(run)
    return json_response(schemas.RunAnswer(run.view()), 201 if is_new else 200)


def parse_answer(given: Any) -> Any:
    """`Approve` or `Deny` for `{"type": "approve"}` and `{"type": "deny"}`; anything else answers a question."""
    kind: Any = cast("dict[str, Any]", given).get("type") if isinstance(given, dict) else None
    if kind not in ("approve", "deny"):
        return cast("Any", given)
    try:
        return msgspec.convert(given, Approve | Deny)
    except msgspec.ValidationError as error:
        raise Problem(422, "invalid", f"An answer is not valid: {error}.") from None


# --- Sessions ------------------------------------------------------------------------------------------------------


async def list_sessions(request: ApiRequest) -> Response:
    """`GET /sessions`."""
    sessions = request.services.sessions.newest_first(request.owner)
    return json_response(schemas.SessionList(tuple(session.view() for session in sessions)))


async def show_session(request: ApiRequest) -> Response:
    """`GET /sessions/{name}`."""
    session = await request.services.history.session(request.owner, request.http.path_params["name"])
    if session is None:
        raise no_such_session()
    runs = tuple(
        run.view() for run in request.services.runs.newest_first(request.owner) if run.info.session == session.name
    )
    return json_response(schemas.SessionDetail(session.view(), session.messages, runs))


async def delete_session(request: ApiRequest) -> Response:
    """`DELETE /sessions/{name}`."""
    name = request.http.path_params["name"]
    await request.services.history.delete_session(request.owner, name)
    await request.services.records.approvals.session_deleted(request.owner, name)
    request.note("delete_session", session=name)
    return Response(status_code=204)


# --- What is kept for an owner -------------------------------------------------------------------------------------


async def list_approvals(request: ApiRequest) -> Response:
    """`GET /approvals`."""
    return json_response(schemas.ApprovalList(await request.services.records.approvals.of(request.owner)))


async def delete_approval(request: ApiRequest) -> Response:
    """`DELETE /approvals/{approval}`."""
    approval_id = request.http.path_params["approval"]
    taken = await request.services.records.approvals.take_back(request.owner, approval_id)
    if taken is None:
        message = "There is no approval with this id."
        raise Problem(404, "no_such_approval", message, todo="GET /approvals lists yours.")
    request.note("disallow", session=taken.session, detail=f"{taken.tool} ({taken.id})")
    return Response(status_code=204)


async def show_audit(request: ApiRequest) -> Response:
    """`GET /audit`."""
    query = request.http.query_params
    action = query.get("action")
    if action is not None and action not in get_args(schemas.AuditAction):
        raise Problem(422, "invalid", f"`action` must be one of: {', '.join(get_args(schemas.AuditAction))}.")
    before = request.number("before", int, least=1, most=10**15)
    limit = int(request.number("limit", int, least=1, most=1000) or 100)
    older, run = None if before is None else int(before), query.get("run", "")
    audit = request.services.records.audit
    return json_response(await audit.read(request.owner, before=older, limit=limit, action=action, run=run))


# --- The rest ------------------------------------------------------------------------------------------------------


async def show_usage(request: ApiRequest) -> Response:
    """`GET /usage`."""
    services = request.services
    await services.history.count_usage(request.owner)
    runs = map(used_run, services.runs.newest_first(request.owner))
    keys = services.history.owners if request.is_operator else ()
    return json_response(services.usage.report(request.owner, runs, usage_filter(request), keys))


async def show_usage_by_key(request: ApiRequest) -> Response:
    """`GET /usage/keys`, for operators."""
    request.check_operator()
    wanted, history = usage_filter(request), request.services.history
    keys = [key for key in history.owners if wanted.key in (None, key)]
    return json_response(report_by_key({key: await history.usage_of(key) for key in keys}, wanted))


def usage_filter(request: ApiRequest) -> UsageFilter:
    """What a request for the usage names. Raises `Problem` for a day that is none."""
    query = request.http.query_params
    days: dict[str, str] = {}
    for name in {"since", "until"}.intersection(query):
        try:
            days[name] = date.fromisoformat(query[name]).isoformat()  # ISO 8601 has other forms, such as 20261116
        except ValueError:
            raise Problem(422, "invalid", f"`{name}` must be a day, such as 2026-11-16.") from None
    return UsageFilter(**days, **{name: query.get(name) for name in ("agent", "session", "key")})


async def list_agents(request: ApiRequest) -> Response:
    """`GET /agents`."""
    return json_response(
        schemas.AgentList(tuple(_agent_view(agent) for agent in request.services.agents.by_name.values()))
    )


def _agent_view(agent: AnyAgent) -> schemas.AgentView:
    config = agent.config
    tools = (
        schemas.ToolView(tool.name, tool.description, str(tool.policy.on_stop), tool.policy.grace)
        for tool in config.tools.values()
    )
    return schemas.AgentView(agent.name, config.model.name, tuple(tools))


async def show_fleet(_: ApiRequest) -> Response:
    """`GET /fleet`: only of a fleet."""
    raise Problem(404, "no_fleet", "This server is not part of a fleet.", todo="See `quiesce serve --fleet`.")


def health(services: Services) -> Response:
    """`GET /healthz`, for load balancers: no key is needed, and 503 means that new runs should go elsewhere."""
    fleet = services.fleet
    is_cut_off = fleet is not None and not fleet.fleet.watcher.is_listening
    status = "draining" if services.quotas.draining else "store_unavailable" if is_cut_off else "ok"
    state = schemas.Health(status, len(services.runs.active), __version__, fleet=fleet is not None)
    return json_response(state, 200 if status == "ok" else 503)
