"""The handlers of the routes on a replica of a fleet: runs are queued, and any run is read and stopped from here."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, Final

from starlette.responses import Response

from ..conversation.validity import user_message
from ..errors import NothingToContinue, StoreReadOnly, StoreUnavailable, UnknownInterrupt
from ..fleet.records import FleetRun, RunRequest
from ..messages import AssistantMessage, UserMessage
from ..sessions.journal.buffer import WRITER
from ..sessions.journal.rows import encode as encode_value
from . import routes, schemas
from .endpoint import ApiRequest, json_response
from .event_log import encode
from .fleet_service import FleetService
from .idempotency import check_same_request, fingerprint
from .problems import Problem, no_such_session, other_agent
from .run_filter import RunFilter, run_filter
from .run_list import encode_change
from .sessions import check_session_name
from .stored_session import owner_and_name, stored_name
from .streams import EventResponse, event_number
from .usage import UsageRows, UsedRun, report_by_key

# Seconds that an answer waits until a command has reached its run. After that the answer says that it has not.
_DELIVERY_WAIT: Final = 5.0
# The newest runs of a key among which a filter, or a page, is looked for.
_MOST_LISTED: Final = 5000

# What the audit calls the commands that it notes.
_COMMANDS: Final[dict[str, schemas.AuditAction]] = {
    "cancel_tool": "stop_tool",
    "steer": "steer",
    "pause": "pause",
    "unpause": "unpause",
}

list_agents = routes.list_agents
list_approvals = routes.list_approvals
delete_approval = routes.delete_approval
show_audit = routes.show_audit


def _service(request: ApiRequest) -> FleetService:
    assert request.services.fleet is not None
    return request.services.fleet


def _note(request: ApiRequest, action: schemas.AuditAction, run: FleetRun, detail: str = "") -> None:
    """Note in the audit what a request has done."""
    request.services.records.audit.note(
        request.owner, action, run=run.id, session=run.label, agent=run.agent, detail=detail
    )


async def _run(request: ApiRequest) -> FleetRun:
    return await _service(request).get(request.owner, request.http.path_params["id"])


# --- Runs ----------------------------------------------------------------------------------------------------------


async def start_run(request: ApiRequest) -> Response:
    """`POST /runs`: the run is queued. An Idempotency-Key holds for all replicas."""
    service, key, body = _service(request), routes.idempotency_key(request), request.body(schemas.StartRun)
    agent = request.services.agents.get(body.agent)
    if body.on_disconnect == "cancel":
        raise Problem(422, "not_possible", "In a fleet a run does not know its readers.", todo="Use a timeout.")
    request.services.quotas.check_not_draining()
    if body.session is not None:
        check_session_name(body.session)
    label = body.session or f"run-{uuid.uuid4().hex[:12]}"
    stored = stored_name(request.owner, label)
    for earlier in await service.fleet.runs(session=stored, limit=1):
        if earlier.agent != agent.name:
            raise other_agent(label, earlier.agent)
    prompt = user_message(body.prompt) if isinstance(body.prompt, str) else UserMessage(tuple(body.prompt))
    wanted = RunRequest(
        request.owner, agent.name, stored, "prompt", encode_value(prompt), label, body.timeout,
        idempotency_key=key, fingerprint=fingerprint(body),
    )  # fmt: skip
    most_runs = request.services.settings.max_runs_per_key
    run, is_new = await service.fleet.submit(wanted, on_busy=body.on_busy, most_runs=most_runs)
    check_same_request(run.fingerprint, body)
    if is_new:
        _note(request, "start", run, prompt.text)
    answer = schemas.RunAnswer(await service.view(run))
    return json_response(answer, 201 if is_new else 200, {"Location": f"runs/{run.id}"})


async def list_runs(request: ApiRequest) -> Response:
    """`GET /runs`."""
    wanted, service = run_filter(request), _service(request)
    state = wanted.state
    states = () if state is None else ("running",) if state == "stopping" else (state,)
    stored = None if wanted.session is None else stored_name(request.owner, wanted.session)
    is_narrow = wanted.before is not None or wanted.search or wanted.since is not None or wanted.until is not None
    most = _MOST_LISTED if is_narrow else wanted.limit + 1
    runs = await service.fleet.runs(owner=request.owner, states=states, agent=wanted.agent, session=stored, limit=most)
    fitting = [run for run in runs if _fits(wanted, run)]
    shown, more = wanted.page(fitting, lambda run: (run.created, run.id))
    views = await service.views(shown)
    return json_response(schemas.RunList(tuple(view for view in views if state in (None, view.state)), more))


def _fits(wanted: RunFilter, run: FleetRun) -> bool:
    prompt = run.prompt
    return wanted.fits(run.label, run.agent, run.created, "" if prompt is None else prompt.text, run.id)


async def show_run(request: ApiRequest) -> Response:
    """`GET /runs/{id}`."""
    service, run = _service(request), await _run(request)
    session = await service.session(run)
    return json_response(schemas.RunDetail(await service.view(run, session), session.messages, run.receipt))


async def delete_run(request: ApiRequest) -> Response:
    """`DELETE /runs/{id}`: not in a fleet."""
    await _run(request)
    raise Problem(409, "not_in_fleet", "A run of a fleet is deleted with its session.", todo="DELETE /sessions/{name}.")


# --- Stopping ------------------------------------------------------------------------------------------------------


async def cancel_run(request: ApiRequest) -> Response:
    """`POST /runs/{id}/cancel`: the answer says whether the stop is accepted, delivered, and the run at rest."""
    service, run, body, wait = _service(request), await _run(request), request.body(schemas.CancelRun), None
    wait = request.wait_seconds()
    state = await service.fleet.stop(run.id, body.reason, mode=body.mode, source=body.source, undo=body.undo, wait=wait)
    assert state is not None
    accepted = state.accepted
    if not accepted and state.run.reason == "interrupt":
        accepted = await service.fleet.withdraw_questions(state.run)
    if accepted:
        what = "withdraw" if state.run.reason == "interrupt" else "stop"
        _note(request, what, run, f"{body.mode}: {body.reason}" if body.reason else str(body.mode))
    view, receipt = await service.view(state.run), state.run.receipt
    answer = schemas.CancelAnswer(accepted, view, receipt, state.delivered)
    return json_response(answer, 202 if receipt is None else 200)


async def cancel_tool(request: ApiRequest) -> Response:
    """`POST /runs/{id}/tools/{call}/cancel`: the run goes on."""
    body, call = request.body(schemas.CancelTool), request.http.path_params["call"]
    return json_response(await _command(request, "cancel_tool", (call, body.reason)), 202)


async def _command(request: ApiRequest, kind: Any, body: object) -> schemas.Accepted:
    """Give a command to a run. One that is not delivered when the wait is over stays stored, and may still be."""
    run = await _run(request)
    state = await _service(request).fleet.command(run.id, kind, body, wait=_DELIVERY_WAIT)
    if state is None or not state.accepted:
        return schemas.Accepted(accepted=False)
    answer = schemas.Accepted(state.took or not state.delivered, state.delivered)
    if answer.accepted and kind in _COMMANDS:
        _note(request, _COMMANDS[kind], run)
    return answer


async def undo_run(request: ApiRequest) -> Response:
    """`POST /runs/{id}/undo`: not in a fleet yet."""
    await _run(request)
    message = "A replica has no tools to undo an ended run with."
    raise Problem(409, "not_in_fleet", message, todo="Stop a run with undo: true, or call agent.undo(session=...).")


# --- Going on ------------------------------------------------------------------------------------------------------


async def steer_run(request: ApiRequest) -> Response:
    """`POST /runs/{id}/steer`."""
    answer = await _command(request, "steer", user_message(request.body(schemas.SteerRun).text))
    if not answer.accepted:
        raise Problem(409, "too_late", "The run does not take the prompt.", todo="Start a run with this prompt.")
    return json_response(answer, 202)


async def pause_run(request: ApiRequest) -> Response:
    """`POST /runs/{id}/pause`."""
    kind = "pause" if request.body(schemas.PauseRun).paused else "unpause"
    if not (await _run(request)).is_active:
        raise Problem(409, "too_late", "The run has ended.")
    return json_response(await _command(request, kind, None), 202)


async def resume_run(request: ApiRequest) -> Response:
    """`POST /runs/{id}/resume`: the answers go to the run that executes the turn, or to a new run."""
    service, run = _service(request), await _run(request)
    given = request.body(schemas.ResumeRun).answers
    for each in given:
        routes.parse_answer(each.answer)
        if each.remember is not None:
            message = "In a fleet an approval is for one call."
            raise Problem(422, "not_in_fleet", message, todo="Answer without `remember`.")
    answers = {each.id: each.answer for each in given}
    if run.is_active and answers:
        if not (await _command(request, "answer", answers)).accepted:
            raise Problem(409, "not_asked", "The run does not wait for these answers.", todo="GET /runs/{id} has them.")
        _note(request, "answer", run, ", ".join(answers))
        return json_response(schemas.RunAnswer(await service.view(run)), 200)
    asked = [each.id for each in (await service.session(run)).interrupts]
    unknown = [each for each in answers if each not in asked]
    if unknown:
        raise UnknownInterrupt(unknown[0], asked)
    if not answers:
        raise Problem(409, "nothing_asked", "There is no answer.", todo="Send a prompt, or continue it.")
    return await _follow_up(request, run, "answer", encode_value(answers))


async def continue_run(request: ApiRequest) -> Response:
    """`POST /runs/{id}/continue`: a new run goes on with the answer that was cut."""
    request.body(schemas.Nothing)
    run = await _run(request)
    session = await _service(request).session(run)
    if run.is_active:
        raise Problem(409, "running", "The run has not ended.", todo="Wait for it, or stop it.")
    if session.values.get(WRITER, run.id.encode()) != run.id.encode():
        raise Problem(409, "moved_on", "The conversation has newer messages.", todo="Continue its latest run.")
    if not session.messages or not isinstance(session.messages[-1], AssistantMessage):
        raise NothingToContinue("There is no answer to continue.")
    return await _follow_up(request, run, "continue", b"null")


async def _follow_up(request: ApiRequest, run: FleetRun, kind: Any, given: bytes) -> Response:
    request.services.quotas.check_not_draining()
    service, most_runs = _service(request), request.services.settings.max_runs_per_key
    wanted = RunRequest(run.owner, run.agent, run.session, kind, given, run.label)
    following, _ = await service.fleet.submit(wanted, on_busy="refuse", most_runs=most_runs)
    _note(request, kind, run)
    return json_response(schemas.RunAnswer(await service.view(following)), 201)


# --- Sessions ------------------------------------------------------------------------------------------------------


async def list_sessions(request: ApiRequest) -> Response:
    """`GET /sessions`."""
    found = [await _session_view(request, name) for name in await _service(request).fleet.session_names(request.owner)]
    return json_response(schemas.SessionList(tuple(each for each in found if each is not None)))


async def _session_view(request: ApiRequest, stored: str) -> schemas.SessionView | None:
    runs = await _service(request).fleet.runs(owner=request.owner, session=stored, limit=50)
    owner_and_label = owner_and_name(stored)
    if not runs or owner_and_label is None:
        return None
    session = await _service(request).session(runs[0])
    active = next((run.id for run in runs if run.state == "running"), None)
    updated = runs[0].ended or runs[0].started or runs[0].created
    return schemas.SessionView(owner_and_label[1], runs[0].agent, len(session.messages), updated, active)


async def show_session(request: ApiRequest) -> Response:
    """`GET /sessions/{name}`."""
    stored = stored_name(request.owner, request.http.path_params["name"])
    view, service = await _session_view(request, stored), _service(request)
    if view is None:
        raise no_such_session()
    runs = await service.fleet.runs(owner=request.owner, session=stored, limit=1000)
    messages = (await service.session(runs[0])).messages
    return json_response(schemas.SessionDetail(view, messages, await service.views(runs)))


async def delete_session(request: ApiRequest) -> Response:
    """`DELETE /sessions/{name}`, with its runs."""
    stored = stored_name(request.owner, request.http.path_params["name"])
    is_own_record = owner_and_name(stored) is None  # such as the audit
    if is_own_record or not await _service(request).fleet.delete_session(request.owner, stored):
        raise no_such_session()
    request.note("delete_session", session=request.http.path_params["name"])
    return Response(status_code=204)


# --- The rest ------------------------------------------------------------------------------------------------------


async def show_usage(request: ApiRequest) -> Response:
    """`GET /usage`: of the last 10,000 runs."""
    used = [run for _, run in await _used(request, request.owner)]
    keys = await _service(request).fleet.owners() if request.is_operator else ()
    return json_response(request.services.usage.report(request.owner, used, routes.usage_filter(request), keys))


async def show_usage_by_key(request: ApiRequest) -> Response:
    """`GET /usage/keys`, for operators: of the last 10,000 runs of all keys, or of one."""
    request.check_operator()
    wanted = routes.usage_filter(request)
    rows_of: dict[str, UsageRows] = {}
    for owner, run in await _used(request, wanted.key):
        rows_of.setdefault(owner, []).extend(run.rows())
    return json_response(report_by_key(rows_of, wanted))


async def _used(request: ApiRequest, owner: str | None) -> list[tuple[str, UsedRun]]:
    """What the last 10,000 runs have used, of one owner or of all, each with its owner."""
    service = _service(request)
    used: list[tuple[str, UsedRun]] = []
    for run in await service.fleet.runs(owner=owner, limit=10_000):
        receipt = run.receipt
        entries = receipt.usage.entries if receipt is not None else (await service.digest(run)).entries(run.id)
        used.append((run.owner, UsedRun(run.created, run.agent, run.label, entries)))
    return used


async def show_fleet(request: ApiRequest) -> Response:
    """`GET /fleet`: nothing in it tells one key about the runs of another one, except how many there are."""
    fleet = _service(request).fleet
    workers, freezes = await fleet.workers(), await fleet.freezes.list()
    return json_response(
        schemas.FleetView(
            tuple(
                schemas.WorkerView(
                    each.id, each.status, each.agents, each.running, each.capacity, each.started, each.age
                )
                for each in workers
            ),
            tuple(schemas.QueueView(*counts) for counts in await fleet.queues()),
            await _caps(request),
            tuple(
                schemas.FreezeView(
                    each.agent, each.reason, each.frozen_by, each.created, each.released, each.released_by,
                    each.release_reason,
                )
                for each in freezes
            ),
        )
    )  # fmt: skip


async def _caps(request: ApiRequest) -> tuple[schemas.CapView, ...]:
    """The caps that runs of this key count for. That of another key is not among them."""
    found: dict[tuple[str, str], schemas.CapView] = {}
    for agent in request.services.agents.by_name:
        for cap, used in await _service(request).fleet.caps.of(request.owner, agent):
            found[cap.owner, cap.agent] = schemas.CapView(
                cap.agent, cap.owner == "", schemas.CapFigures(cap.runs, cap.tokens, cap.cost),
                schemas.CapFigures(used.runs, used.tokens, used.cost), used.day_left,
            )  # fmt: skip
    return tuple(found.values())


async def stream_events(request: ApiRequest) -> Response:
    """`GET /runs/{id}/events`: from any replica, in order, to be resumed at any other."""
    service, run, number = _service(request), await _run(request), event_number(request)
    if number and await service.fleet.is_over(run, number):
        return Response(status_code=204)
    return EventResponse(request.services, request.owner, _frames(service, run.id, number), lambda: None)


async def _frames(service: FleetService, run_id: str, after: int) -> AsyncGenerator[bytes]:
    # The stream ends, and the client comes back with the number of its last event.
    with suppress(StoreUnavailable, StoreReadOnly):
        async for number, event in service.fleet.events(run_id, after, until=service.closing):
            yield encode(number, event, None)


async def stream_changes(request: ApiRequest) -> Response:
    """`GET /events`: the list of runs, and then each run that changes."""
    frames = _changes(_service(request), request.owner)
    return EventResponse(request.services, request.owner, frames, lambda: None)


async def _changes(service: FleetService, owner: str) -> AsyncGenerator[bytes]:
    with suppress(StoreUnavailable, StoreReadOnly), service.fleet.watcher.subscription() as change:
        runs = await service.fleet.runs(owner=owner, limit=200)
        yield _change(schemas.RunsListed(await service.views(runs)))
        while await change.wait_for(service.closing):
            run_ids = change.take()
            changed = await service.fleet.runs(owner=owner, run_ids=list(run_ids) or None, limit=200)
            for run in reversed(changed):
                yield _change(schemas.RunChanged(await service.view(run)))


def _change(change: schemas.RunsChange) -> bytes:
    return encode_change(uuid.uuid4().hex[:8], change)
