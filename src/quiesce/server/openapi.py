"""The OpenAPI document, made from the same types that the routes read and write."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias, get_args

import msgspec

from .._version import __version__
from ..events import Event
from . import schemas as views
from .settings import Settings

_Json: TypeAlias = dict[str, Any]

_TYPES: Final = (
    views.StartRun,
    views.CancelRun,
    views.CancelTool,
    views.SteerRun,
    views.ResumeRun,
    views.Nothing,
    views.RunAnswer,
    views.RunDetail,
    views.RunList,
    views.CancelAnswer,
    views.Accepted,
    views.ReceiptAnswer,
    views.SessionList,
    views.SessionDetail,
    views.UsageReport,
    views.AgentList,
    views.Health,
    views.RunsListed,
    views.RunChanged,
    views.RunGone,
)

_ERRORS: Final = {
    400: "The body is not JSON.",
    401: "The API key is missing or wrong.",
    403: "The request was made by a page of another site.",
    404: "There is no such thing, or it is somebody else's.",
    408: "The body did not arrive in time.",
    409: "Not in this state.",
    410: "The run is no longer known.",
    413: "The body is too large.",
    415: "The body must be application/json.",
    422: "The request cannot be used.",
    429: "Too many runs or streams; see Retry-After.",
    503: "The server is shutting down; see Retry-After.",
}
_ALWAYS: Final = (401, 403)
_WITH_BODY: Final = (400, 408, 413, 415, 422)


@cache
def document(settings: Settings) -> _Json:
    """The document for a server with these settings."""
    _, schemas = msgspec.json.schema_components((*_TYPES, Event), ref_template="#/components/schemas/{name}")
    schemas["Event"] = _one_of("What the `data` of a run's event stream holds.", Event)
    schemas["RunsChange"] = _one_of("What the `data` of the stream of changes holds.", views.RunsChange)
    schemas["Error"] = _ERROR
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Quiesce",
            "version": __version__,
            "description": "Agent runs that can be stopped at any instant, and what is left is true.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": _paths(settings.max_wait),
        "security": [{"key": []}, {}],
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _one_of(description: str, union: Any) -> _Json:
    return {"description": description, "oneOf": [_ref(kind.__name__) for kind in get_args(union)]}


_ERROR: Final[_Json] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "todo"],
            "properties": {"code": {"type": "string"}, "message": {"type": "string"}, "todo": {"type": "string"}},
        }
    },
}


def _ref(name: str) -> _Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(name: str, description: str) -> _Json:
    content = {"content": {"application/json": {"schema": _ref(name)}}} if name else {}
    return {"description": description, **content}


def _parameter(where: str, name: str, description: str, schema: _Json) -> _Json:
    return {"name": name, "in": where, "required": where == "path", "description": description, "schema": schema}


_TEXT: Final[_Json] = {"type": "string"}
_IN_PATH: Final = {
    "id": _parameter("path", "id", "The run's id.", _TEXT),
    "call": _parameter("path", "call", "The tool call's id.", _TEXT),
    "name": _parameter("path", "name", "The session's name.", _TEXT),
}
_STATES: Final[_Json] = {"type": "string", "enum": ["queued", "running", "stopping", "ended", "crashed"]}
_LIMIT: Final[_Json] = {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
_KEY: Final[_Json] = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}
_EVENT_NUMBER: Final[_Json] = {"type": "integer", "minimum": 0, "maximum": 10**15}
_PLACE: Final[_Json] = {"type": "string", "pattern": "^[!-~]*$"}
_FILTERS: Final = (
    _parameter("query", "state", "Only runs in this state.", _STATES),
    _parameter("query", "session", "Only runs of this session.", _TEXT),
    _parameter("query", "limit", "So many at most.", _LIMIT),
)
_IDEMPOTENCY: Final = _parameter(
    "header", "Idempotency-Key", "The same key again gives the same run, and starts no second one.", _KEY
)


def _resume_at(schema: _Json) -> tuple[_Json, ...]:
    return (
        _parameter("header", "Last-Event-ID", "Begin after this event.", schema),
        _parameter("query", "after", "The same, for clients that cannot set headers.", schema),
    )


def _wait(longest: float) -> _Json:
    limits: _Json = {"type": "number", "minimum": 0, "maximum": longest}
    return _parameter("query", "wait", "Seconds to wait for the run to be at rest.", limits)


@dataclass(frozen=True)
class _Operation:
    """One row of the table below.

    answers    by status: the schema and what it means; without a schema, there is no body
    body       the schema of what is sent; with a question mark it may be left out
    stream     the schema of the events, for an answer that is a stream of them
    waits      whether the client may wait for the run with `?wait=`
    refusals   the errors beside those that follow from the rest
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
_FORGOTTEN: Final = {204: ("", "Forgotten.")}
_BUSY: Final = (409, 429, 503)
_BODY_REFUSED: Final = (408, 413, 415)

_OPERATIONS: Final = (
    _Operation(
        "post", "/runs", "start_run", "Start a run",
        {201: ("RunAnswer", "The run."), 200: ("RunAnswer", "The run that this Idempotency-Key started before.")},
        body="StartRun", parameters=(_IDEMPOTENCY,), refusals=(410, *_BUSY),
    ),
    _Operation(
        "get", "/runs", "list_runs", "The runs", {200: ("RunList", "The newest first.")},
        parameters=_FILTERS, refusals=(422,),
    ),
    _Operation(
        "get", "/events", "stream_changes", "What changes in the list of runs, as it happens", {},
        stream="RunsChange", parameters=_resume_at(_PLACE), refusals=(429,),
    ),
    _Operation(
        "get", "/runs/{id}", "show_run", "A run, its conversation and its receipt", {200: ("RunDetail", "The run.")},
    ),
    _Operation(
        "delete", "/runs/{id}", "delete_run", "Forget an ended run", _FORGOTTEN, refusals=(409, *_BODY_REFUSED),
    ),
    _Operation(
        "get", "/runs/{id}/events", "stream_events", "A run's events as they happen, and those that have happened", {},
        stream="Event", parameters=_resume_at(_EVENT_NUMBER), refusals=(422, 429),
    ),
    _Operation(
        "post", "/runs/{id}/cancel", "cancel_run", "Stop a run",
        {
            200: ("CancelAnswer", "The run has ended; with its receipt."),
            202: ("CancelAnswer", "The stop was asked for, and the run is not at rest yet."),
        },
        body="CancelRun?", waits=True,
    ),
    _Operation(
        "post", "/runs/{id}/steer", "steer_run", "Say something to a running run",
        {202: ("Accepted", "It will be said.")}, body="SteerRun", refusals=(409,),
    ),
    _Operation(
        "post", "/runs/{id}/resume", "resume_run", "Answer what a run asked, and go on in a new run", _NEW_RUN,
        body="ResumeRun", refusals=_BUSY,
    ),
    _Operation(
        "post", "/runs/{id}/undo", "undo_run", "Take back what the run's tools can take back",
        {
            200: ("ReceiptAnswer", "Everything was tried; the receipt says what came of it."),
            202: ("ReceiptAnswer", "It is under way."),
        },
        body="Nothing?", waits=True, refusals=(409, 503),
    ),
    _Operation(
        "post", "/runs/{id}/continue", "continue_run", "Go on where a stopped run was cut, in a new run", _NEW_RUN,
        body="Nothing?", refusals=_BUSY,
    ),
    _Operation(
        "post", "/runs/{id}/tools/{call}/cancel", "cancel_tool", "Stop one tool call; the run goes on",
        {202: ("Accepted", "Whether this changed anything.")}, body="CancelTool?",
    ),
    _Operation("get", "/sessions", "list_sessions", "The sessions", {200: ("SessionList", "The latest first.")}),
    _Operation(
        "get", "/sessions/{name}", "show_session", "A session and its conversation",
        {200: ("SessionDetail", "The session.")},
    ),
    _Operation(
        "delete", "/sessions/{name}", "delete_session", "Forget a session", _FORGOTTEN, refusals=(409, *_BODY_REFUSED),
    ),
    _Operation("get", "/usage", "show_usage", "What was used", {200: ("UsageReport", "The figures.")}),
    _Operation("get", "/agents", "list_agents", "The agents", {200: ("AgentList", "The agents.")}),
    _Operation(
        "get", "/healthz", "health", "Whether new runs are taken",
        {200: ("Health", "They are."), 503: ("Health", "They are not.")}, open_to_all=True,
    ),
)  # fmt: skip


def _paths(longest_wait: float) -> _Json:
    paths: _Json = {}
    for operation in _OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _describe(operation, longest_wait)
    return paths


def _describe(operation: _Operation, longest_wait: float) -> _Json:
    in_path = [_IN_PATH[name] for name in re.findall(r"{(\w+)}", operation.path)]
    waiting = [_wait(longest_wait)] if operation.waits else []
    described: _Json = {
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": [*in_path, *operation.parameters, *waiting],
        "responses": _responses(operation),
    }
    if operation.body:
        described["requestBody"] = {
            "required": not operation.body.endswith("?"),
            "content": {"application/json": {"schema": _ref(operation.body.rstrip("?"))}},
        }
    if operation.open_to_all:
        described["security"] = []
    return described


# What can be done next with a run that was answered with, and what in the answer it takes.
_NEXT: Final = (
    "show_run", "stream_events", "cancel_run", "steer_run", "resume_run", "undo_run", "continue_run", "delete_run",
)  # fmt: skip


def _links(schema: str, _: str) -> _Json:
    """The operations that an answer with a run in it leads to."""
    if schema not in ("RunAnswer", "RunDetail"):
        return {}
    return {"links": {name: {"operationId": name, "parameters": {"id": "$response.body#/run/id"}} for name in _NEXT}}


def _responses(operation: _Operation) -> _Json:
    responses: _Json = {str(status): _json(*what) | _links(*what) for status, what in operation.answers.items()}
    if operation.stream:
        what = f"Server-sent events; the `data` of each is a {operation.stream}."
        responses["200"] = {"description": what, "content": {"text/event-stream": {}}}
    refusals = () if operation.open_to_all else (*_ALWAYS, *operation.refusals)
    refusals += _WITH_BODY if operation.body else ()
    refusals += (404,) if "{" in operation.path else ()
    return responses | {str(status): _json("Error", _ERRORS[status]) for status in sorted({*refusals})}
