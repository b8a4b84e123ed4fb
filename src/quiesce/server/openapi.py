"""The OpenAPI document, made from the same types that the routes read and write."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeAlias

import msgspec

from .._version import __version__
from ..events import Event
from . import views
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
    schemas["Event"] = {"description": "What the `data` of an event stream holds.", "oneOf": _refs_of_events()}
    schemas["Error"] = _ERROR
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Quiesce",
            "version": __version__,
            "description": "Agent runs that can be stopped at any instant, and what is left is true.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": _paths(settings),
        "security": [{"key": []}, {}],
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _refs_of_events() -> list[_Json]:
    from typing import get_args

    return [_ref(kind.__name__) for kind in get_args(Event)]


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
    return {"description": description, "content": {"application/json": {"schema": _ref(name)}}}


def _operation(
    summary: str,
    answers: dict[int, tuple[str, str] | str],
    *,
    id: str,
    body: str | None = None,
    optional_body: bool = False,
    parameters: tuple[_Json, ...] = (),
    errors: tuple[int, ...] = (),
    open_to_all: bool = False,
) -> _Json:
    responses: _Json = {
        str(status): _json(*what) if isinstance(what, tuple) else {"description": what}
        for status, what in answers.items()
    }
    refused = () if open_to_all else (*_ALWAYS, *(_WITH_BODY if body is not None else ()), *errors)
    for status in sorted({*refused}):
        responses[str(status)] = _json("Error", _ERRORS[status])
    operation: _Json = {"operationId": id, "summary": summary, "parameters": list(parameters), "responses": responses}
    if body is not None:
        operation["requestBody"] = {
            "required": not optional_body,
            "content": {"application/json": {"schema": _ref(body)}},
        }
    if open_to_all:
        operation["security"] = []
    return operation


def _in_path(name: str, description: str) -> _Json:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": {"type": "string"}}


def _in_query(name: str, description: str, schema: _Json) -> _Json:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def _in_header(name: str, description: str, schema: _Json) -> _Json:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


_RUN: Final = _in_path("id", "The run's id.")
_CALL: Final = _in_path("call", "The tool call's id.")
_SESSION: Final = _in_path("name", "The session's name.")
_IDEMPOTENCY: Final = _in_header(
    "Idempotency-Key",
    "The same key again gives the same run, and starts no second one.",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
)
_EVENT_NUMBER: Final[_Json] = {"type": "integer", "minimum": 0, "maximum": 10**15}


def _paths(settings: Settings) -> _Json:
    wait = _in_query(
        "wait",
        "Seconds to wait for the run to be at rest.",
        {"type": "number", "minimum": 0, "maximum": settings.max_wait},
    )
    return {
        "/runs": {"post": _start(), "get": _list()},
        "/runs/{id}": {
            "get": _operation(
                "A run, its conversation and its receipt",
                {200: ("RunDetail", "The run.")},
                id="show_run",
                parameters=(_RUN,),
                errors=(404,),
            ),
            "delete": _operation(
                "Forget an ended run",
                {204: "Forgotten."},
                id="delete_run",
                parameters=(_RUN,),
                errors=(404, 408, 409, 413, 415),
            ),
        },
        "/runs/{id}/events": {"get": _events()},
        "/runs/{id}/cancel": {
            "post": _operation(
                "Stop a run",
                {
                    200: ("CancelAnswer", "The run has ended; with its receipt."),
                    202: ("CancelAnswer", "The stop was asked for, and the run is not at rest yet."),
                },
                id="cancel_run",
                body="CancelRun",
                optional_body=True,
                parameters=(_RUN, wait),
                errors=(404,),
            )
        },
        "/runs/{id}/steer": {
            "post": _operation(
                "Say something to a running run",
                {202: ("Accepted", "It will be said.")},
                id="steer_run",
                body="SteerRun",
                parameters=(_RUN,),
                errors=(404, 409),
            )
        },
        "/runs/{id}/resume": {
            "post": _operation(
                "Answer what a run asked, and go on in a new run",
                {201: ("RunAnswer", "The new run.")},
                id="resume_run",
                body="ResumeRun",
                parameters=(_RUN,),
                errors=(404, 409, 429, 503),
            )
        },
        "/runs/{id}/undo": {
            "post": _operation(
                "Take back what the run's tools can take back",
                {
                    200: ("ReceiptAnswer", "Everything was tried; the receipt says what came of it."),
                    202: ("ReceiptAnswer", "It is under way."),
                },
                id="undo_run",
                body="Nothing",
                optional_body=True,
                parameters=(_RUN, wait),
                errors=(404, 409, 503),
            )
        },
        "/runs/{id}/continue": {
            "post": _operation(
                "Go on where a stopped run was cut, in a new run",
                {201: ("RunAnswer", "The new run.")},
                id="continue_run",
                body="Nothing",
                optional_body=True,
                parameters=(_RUN,),
                errors=(404, 409, 429, 503),
            )
        },
        "/runs/{id}/tools/{call}/cancel": {
            "post": _operation(
                "Stop one tool call; the run goes on",
                {202: ("Accepted", "Whether this changed anything.")},
                id="cancel_tool",
                body="CancelTool",
                optional_body=True,
                parameters=(_RUN, _CALL),
                errors=(404,),
            )
        },
        "/sessions": {
            "get": _operation("The sessions", {200: ("SessionList", "The latest first.")}, id="list_sessions")
        },
        "/sessions/{name}": {
            "get": _operation(
                "A session and its conversation",
                {200: ("SessionDetail", "The session.")},
                id="show_session",
                parameters=(_SESSION,),
                errors=(404,),
            ),
            "delete": _operation(
                "Forget a session",
                {204: "Forgotten."},
                id="delete_session",
                parameters=(_SESSION,),
                errors=(404, 408, 409, 413, 415),
            ),
        },
        "/usage": {"get": _operation("What was used", {200: ("UsageReport", "The figures.")}, id="show_usage")},
        "/agents": {"get": _operation("The agents", {200: ("AgentList", "The agents.")}, id="list_agents")},
        "/healthz": {
            "get": _operation(
                "Whether new runs are taken",
                {200: ("Health", "They are."), 503: ("Health", "They are not.")},
                id="health",
                open_to_all=True,
            )
        },
    }


def _start() -> _Json:
    return _operation(
        "Start a run",
        {201: ("RunAnswer", "The run."), 200: ("RunAnswer", "The run that this Idempotency-Key started before.")},
        id="start_run",
        body="StartRun",
        parameters=(_IDEMPOTENCY,),
        errors=(409, 410, 429, 503),
    )


def _list() -> _Json:
    states = {"type": "string", "enum": ["queued", "running", "stopping", "ended", "crashed"]}
    return _operation(
        "The runs",
        {200: ("RunList", "The newest first.")},
        id="list_runs",
        parameters=(
            _in_query("state", "Only runs in this state.", states),
            _in_query("session", "Only runs of this session.", {"type": "string"}),
            _in_query("limit", "So many at most.", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}),
        ),
        errors=(422,),
    )


def _events() -> _Json:
    operation = _operation(
        "A run's events as they happen, and those that have happened",
        {},
        id="stream_events",
        parameters=(
            _RUN,
            _in_header("Last-Event-ID", "Begin after this event.", _EVENT_NUMBER),
            _in_query("after", "The same, for clients that cannot set headers.", _EVENT_NUMBER),
        ),
        errors=(404, 422, 429),
    )
    stream: _Json = {"description": "Server-sent events; `data` is an Event.", "content": {"text/event-stream": {}}}
    operation["responses"]["200"] = stream
    return operation
