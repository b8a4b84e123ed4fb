"""The table of the operations: the routes of the application, and the OpenAPI document, are made from it."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias, get_args

import msgspec

from .._version import __version__
from ..events import Event
from . import schemas
from .openapi_examples import EXAMPLES, STREAMS
from .openapi_words import OPERATION_WORDS, TAGS, field_words
from .settings import Settings

_Json: TypeAlias = dict[str, Any]

_ERRORS: Final = {
    400: "The body is not JSON.",
    401: "The API key is missing or wrong.",
    403: "The request comes from a page of another site, or needs the key of an operator.",
    404: "It does not exist, or it belongs to another key.",
    408: "The body did not arrive in time.",
    409: "Not possible in the current state.",
    410: "The run has been deleted.",
    413: "The body is too large.",
    415: "The body must be application/json.",
    422: "The request is not valid.",
    423: "The agent is frozen: no run of it may start.",
    429: "Too many runs or streams, or a cap is used up; see Retry-After.",
    503: "The server is shutting down, or its store cannot be reached; see Retry-After.",
}
_ALWAYS: Final = (401, 403, 503)
_WITH_BODY: Final = (400, 408, 413, 415, 422)


@cache
def document(settings: Settings) -> _Json:
    """The document for a server with these settings."""
    names = {name for each in OPERATIONS for name, _ in (*each.answers.values(), (each.body.rstrip("?"), "")) if name}
    types = (*(getattr(schemas, name) for name in sorted(names)), schemas.RunsChange, Event)
    _, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    components["Event"] = _one_of("What the `data` of a run's event stream holds.", Event)
    components["RunsChange"] = _one_of("What the `data` of the stream of changes holds.", schemas.RunsChange)
    components["Error"] = _ERROR
    for name, component in components.items():
        _add_words(name, component)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Quiesce",
            "version": __version__,
            "description": "Agent runs that can be stopped at any instant, and what is left is true.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": name, "description": about} for name, about in TAGS.items()],
        "paths": _paths(settings.max_wait),
        "security": [{"key": []}, {}],
        "components": {"schemas": components, "securitySchemes": {"key": _KEY_SCHEME}},
    }


_KEY_SCHEME: Final[_Json] = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key. A server without keys answers clients on its own machine only.",
}


def _add_words(name: str, component: _Json) -> None:
    """Add what the fields of a schema mean, and an example where there is one."""
    if "description" in component:
        component["description"] = inspect.cleandoc(component["description"])
    for field, schema in component.get("properties", {}).items():
        words = field_words(name, field)
        if words is not None:
            schema.setdefault("description", words)
    if name in EXAMPLES:
        component["examples"] = [EXAMPLES[name]]


def _one_of(description: str, union: Any) -> _Json:
    return {"description": description, "oneOf": [_ref(kind.__name__) for kind in get_args(union)]}


_ERROR: Final[_Json] = {
    "title": "Error",
    "description": "Why a request was refused.",
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "todo"],
            "properties": {
                "code": {"type": "string", "description": "A word for programs."},
                "message": {"type": "string", "description": "What happened."},
                "todo": {"type": "string", "description": "What to do about it."},
            },
        }
    },
}


def _ref(name: str) -> _Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(name: str, description: str) -> _Json:
    content = {"content": {"application/json": _example(name)}} if name else {}
    return {"description": description, **content}


def _example(name: str) -> _Json:
    """The schema of a body, with an example where there is one."""
    return {"schema": _ref(name)} | ({"example": EXAMPLES[name]} if name in EXAMPLES else {})


def _parameter(where: str, name: str, description: str, schema: _Json) -> _Json:
    return {"name": name, "in": where, "required": where == "path", "description": description, "schema": schema}


_TEXT: Final[_Json] = {"type": "string"}
_IN_PATH: Final = {
    "id": _parameter("path", "id", "The run's id.", _TEXT),
    "call": _parameter("path", "call", "The tool call's id.", _TEXT),
    "name": _parameter("path", "name", "The session's name.", _TEXT),
    "approval": _parameter("path", "approval", "The approval's id.", _TEXT),
}
_STATES: Final[_Json] = {"type": "string", "enum": list(get_args(schemas.RunStatus))}
_LIMIT: Final[_Json] = {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
_KEY: Final[_Json] = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}
_EVENT_NUMBER: Final[_Json] = {"type": "integer", "minimum": 0, "maximum": 10**15}
_PLACE: Final[_Json] = {"type": "string", "pattern": "^[!-~]*$"}
_WORDS: Final[_Json] = {"type": "string", "maxLength": 1000}
_TIME: Final[_Json] = {"type": "number", "minimum": 0, "maximum": 10**12}
_CURSOR: Final[_Json] = {"type": "string", "pattern": "^[0-9]+[.][0-9]+_[0-9a-z]*$"}
_FILTERS: Final = (
    _parameter("query", "state", "Only runs in this state.", _STATES),
    _parameter("query", "session", "Only runs of this session.", _TEXT),
    _parameter("query", "agent", "Only runs of this agent.", _TEXT),
    _parameter("query", "since", "Only runs that were started then or later, in seconds since the epoch.", _TIME),
    _parameter("query", "until", "Only runs that were started before, in seconds since the epoch.", _TIME),
    _parameter(
        "query", "search", "Only runs with these words in the prompt, the session, the agent or the id.", _WORDS
    ),
    _parameter("query", "before", "Only older runs: `next` of the page before.", _CURSOR),
    _parameter("query", "limit", "The maximum number of runs.", _LIMIT),
)
_DAY: Final[_Json] = {"type": "string", "format": "date"}
_RANGE: Final = (
    _parameter("query", "since", "Only the usage of this day (UTC) and later.", _DAY),
    _parameter("query", "until", "Only the usage of this day (UTC) and earlier.", _DAY),
    _parameter("query", "agent", "Only the usage of this agent.", _TEXT),
    _parameter("query", "session", "Only the usage of this session, of runs that the server has in memory.", _TEXT),
)
_RANGE_BY_KEY: Final = (*_RANGE[:3], _parameter("query", "key", "Only the usage of this key.", _TEXT))
_NUMBER: Final[_Json] = {"type": "integer", "minimum": 1, "maximum": 10**15}
_ACTIONS: Final[_Json] = {"type": "string", "enum": list(get_args(schemas.AuditAction))}
_AUDIT: Final = (
    _parameter("query", "before", "Only entries before this number: `next` of the page before.", _NUMBER),
    _parameter("query", "limit", "The maximum number of entries.", _LIMIT),
    _parameter("query", "action", "Only what was done so.", _ACTIONS),
    _parameter("query", "run", "Only what was done to this run.", _TEXT),
)
_IDEMPOTENCY: Final = _parameter(
    "header", "Idempotency-Key", "A repeated request with the same key gets the same run instead of a second one.", _KEY
)


def _resume_at(schema: _Json) -> tuple[_Json, ...]:
    return (
        _parameter("header", "Last-Event-ID", "Start after this event.", schema),
        _parameter("query", "after", "Like Last-Event-ID, for clients that cannot set headers.", schema),
    )


def _wait(longest: float) -> _Json:
    limits: _Json = {"type": "number", "minimum": 0, "maximum": longest}
    return _parameter("query", "wait", "Seconds to wait for the run to be at rest.", limits)


@dataclass(frozen=True)
class APIOperation:
    """One row of the table below.

    id         the name of its handler, in `routes` or `streams`
    answers    by status: the schema and what it means; without a schema, there is no body
    body       the schema of the request body; with a question mark it is optional
    stream     the schema of the events, for a response that is a stream
    waits      whether the client may wait for the run with `?wait=`
    refusals   further errors, besides those that follow from the other fields
    """

    method: str
    path: str
    id: str
    summary: str
    answers: dict[int, tuple[str, str]]
    body: str = ""
    stream: str = ""
    parameters: tuple[_Json, ...] = ()
    waits: bool = False
    refusals: tuple[int, ...] = ()
    open_to_all: bool = False


_NEW_RUN: Final = {201: ("RunAnswer", "The new run.")}
_DELETED: Final = {204: ("", "Deleted.")}
_BUSY: Final = (409, 423, 429)
_BODY_REFUSED: Final = (408, 413, 415)

OPERATIONS: Final = (
    APIOperation(
        "post", "/runs", "start_run", "Start a run",
        {201: ("RunAnswer", "The run."), 200: ("RunAnswer", "The run that this Idempotency-Key started before.")},
        body="StartRun", parameters=(_IDEMPOTENCY,), refusals=(410, *_BUSY),
    ),
    APIOperation(
        "get", "/runs", "list_runs", "The runs", {200: ("RunList", "The newest first.")},
        parameters=_FILTERS, refusals=(422,),
    ),
    APIOperation(
        "get", "/events", "stream_changes", "The changes in the list of runs, as a stream", {},
        stream="RunsChange", parameters=_resume_at(_PLACE), refusals=(429,),
    ),
    APIOperation(
        "get", "/runs/{id}", "show_run", "A run, its conversation and its receipt", {200: ("RunDetail", "The run.")},
    ),
    APIOperation(
        "delete", "/runs/{id}", "delete_run", "Delete an ended run", _DELETED, refusals=(409, *_BODY_REFUSED),
    ),
    APIOperation(
        "get", "/runs/{id}/events", "stream_events", "All events of a run, past and future",
        {204: ("", "The run has ended, and the client has seen its last event.")},
        stream="Event", parameters=_resume_at(_EVENT_NUMBER), refusals=(422, 429),
    ),
    APIOperation(
        "post", "/runs/{id}/cancel", "cancel_run", "Stop a run",
        {
            200: ("CancelAnswer", "The run has ended; with its receipt."),
            202: ("CancelAnswer", "The stop was requested, and the run has not ended yet."),
        },
        body="CancelRun?", waits=True,
    ),
    APIOperation(
        "post", "/runs/{id}/steer", "steer_run", "Steer a running run with a prompt",
        {202: ("Accepted", "The prompt was accepted.")}, body="SteerRun", refusals=(409,),
    ),
    APIOperation(
        "post", "/runs/{id}/pause", "pause_run", "Let a run wait before its next step, or go on",
        {202: ("Accepted", "Whether the run waits, or goes on, from now on.")}, body="PauseRun?", refusals=(409,),
    ),
    APIOperation(
        "post", "/runs/{id}/resume", "resume_run", "Answer the questions of a run",
        {201: _NEW_RUN[201], 200: ("RunAnswer", "The run that executes the turn already; it has taken the answers.")},
        body="ResumeRun", refusals=_BUSY,
    ),
    APIOperation(
        "post", "/runs/{id}/undo", "undo_run", "Undo the calls of tools that have an undo",
        {
            200: ("ReceiptAnswer", "The undo is complete; the receipt has the outcomes."),
            202: ("ReceiptAnswer", "The undo is in progress."),
        },
        body="Nothing?", waits=True, refusals=(409,),
    ),
    APIOperation(
        "post", "/runs/{id}/continue", "continue_run", "Continue the answer of a stopped run, in a new run", _NEW_RUN,
        body="Nothing?", refusals=_BUSY,
    ),
    APIOperation(
        "post", "/runs/{id}/tools/{call}/cancel", "cancel_tool", "Stop one tool call; the run goes on",
        {202: ("Accepted", "Whether this changed anything.")}, body="CancelTool?",
    ),
    APIOperation("get", "/sessions", "list_sessions", "The sessions", {200: ("SessionList", "The latest first.")}),
    APIOperation(
        "get", "/sessions/{name}", "show_session", "A session and its conversation",
        {200: ("SessionDetail", "The session.")},
    ),
    APIOperation(
        "delete", "/sessions/{name}", "delete_session", "Delete a session", _DELETED, refusals=(409, *_BODY_REFUSED),
    ),
    APIOperation(
        "get", "/approvals", "list_approvals", "The approvals that were given in advance",
        {200: ("ApprovalList", "The newest first.")},
    ),
    APIOperation(
        "delete", "/approvals/{approval}", "delete_approval", "Take back an approval that was given in advance",
        _DELETED, refusals=_BODY_REFUSED,
    ),
    APIOperation(
        "get", "/audit", "show_audit", "Who has started, stopped, answered, steered and deleted what",
        {200: ("AuditPage", "The newest first.")}, parameters=_AUDIT, refusals=(422,),
    ),
    APIOperation(
        "get", "/usage", "show_usage", "The usage", {200: ("UsageReport", "The figures.")},
        parameters=_RANGE, refusals=(422,),
    ),
    APIOperation(
        "get", "/usage/keys", "show_usage_by_key", "The usage of all keys, for an operator",
        {200: ("UsageByKey", "The figures.")}, parameters=_RANGE_BY_KEY, refusals=(422,),
    ),
    APIOperation("get", "/agents", "list_agents", "The agents", {200: ("AgentList", "The agents.")}),
    APIOperation(
        "get", "/fleet", "show_fleet", "The workers, the queue and the freezes of a fleet",
        {200: ("FleetView", "The fleet.")}, refusals=(404,),
    ),
    APIOperation(
        "get", "/healthz", "health", "Whether the server accepts new runs",
        {200: ("Health", "It does."), 503: ("Health", "It does not: see `status`.")}, open_to_all=True,
    ),
)  # fmt: skip


def _paths(longest_wait: float) -> _Json:
    paths: _Json = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _describe(operation, longest_wait)
    return paths


def _describe(operation: APIOperation, longest_wait: float) -> _Json:
    in_path = [_IN_PATH[name] for name in re.findall(r"{(\w+)}", operation.path)]
    waiting = [_wait(longest_wait)] if operation.waits else []
    tag, description = OPERATION_WORDS[operation.id]
    described: _Json = {
        "operationId": operation.id,
        "tags": [tag],
        "summary": operation.summary,
        "description": description,
        "parameters": [*in_path, *operation.parameters, *waiting],
        "responses": _responses(operation),
    }
    if operation.body:
        described["requestBody"] = {
            "required": not operation.body.endswith("?"),
            "content": {"application/json": _example(operation.body.rstrip("?"))},
        }
    if operation.open_to_all:
        described["security"] = []
    return described


# The operations that can follow a response with a run.
_NEXT: Final = (
    "show_run", "stream_events", "cancel_run", "steer_run", "pause_run", "resume_run", "undo_run", "continue_run",
    "delete_run",
)  # fmt: skip


def _links(schema: str, _: str) -> _Json:
    """OpenAPI links to the operations that can follow a response with a run."""
    if schema not in ("RunAnswer", "RunDetail"):
        return {}
    return {"links": {name: {"operationId": name, "parameters": {"id": "$response.body#/run/id"}} for name in _NEXT}}


def _responses(operation: APIOperation) -> _Json:
    responses: _Json = {str(status): _json(*what) | _links(*what) for status, what in operation.answers.items()}
    if operation.stream:
        what = f"Server-sent events; the `data` of each is a {operation.stream}."
        responses["200"] = {
            "description": what,
            "content": {"text/event-stream": {"example": STREAMS[operation.stream]}},
        }
    refusals = () if operation.open_to_all else (*_ALWAYS, *operation.refusals)
    refusals += _WITH_BODY if operation.body else ()
    refusals += (404,) if "{" in operation.path else ()
    return responses | {str(status): _json("Error", _ERRORS[status]) for status in sorted({*refusals})}
