"""Error responses: one shape for every error."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from .. import errors

_log: Final = logging.getLogger("quiesce.server")
_SOON: Final = {"Retry-After": "5"}


class Problem(Exception):
    """An error response: a status, a code for programs, and a message and a remedy for users."""

    def __init__(
        self, status: int, code: str, message: str, *, todo: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status: Final = status
        self.code: Final = code
        self.message: Final = message
        self.todo: Final = todo
        self.headers: Final = dict(headers or {})

    def response(self) -> Response:
        """The response as it is sent."""
        body = {"error": {"code": self.code, "message": self.message, "todo": self.todo}}
        return Response(msgspec.json.encode(body), self.status, self.headers, "application/json")


def no_such_run() -> Problem:
    """For a run that does not exist. The same response as for a run of another owner."""
    return Problem(404, "no_such_run", "There is no run with this id.", todo="GET /runs lists yours.")


def no_such_session() -> Problem:
    """For a session that does not exist. The same response as for a session of another owner."""
    return Problem(404, "no_such_session", "There is no session with this name.", todo="GET /sessions lists yours.")


def other_agent(session: str, agent: str) -> Problem:
    """For a session that a run of another agent has begun."""
    message = f"The session {session!r} belongs to the agent {agent!r}."
    return Problem(409, "other_agent", message, todo="Name that agent, or use another session.")


def problem_of(error: errors.QuiesceError) -> Problem:
    """The error response for an error of Quiesce."""
    match error:
        case errors.SessionBusy():  # its own text names the host and the process of the other server
            return Problem(
                409, "session_busy", "Another server is using this session.", todo="Wait, or ask that server."
            )
        case errors.ConversationBusy():
            return Problem(409, "session_busy", error.what, todo="Wait for that run, or stop it.")
        case errors.CapReached():
            code = "too_many_runs" if error.counts == "runs" else "cap_reached"
            headers = {"Retry-After": str(math.ceil(error.retry_after))}
            return Problem(429, code, error.what, todo=error.todo, headers=headers)
        case errors.AgentFrozen():
            return Problem(423, "frozen", error.what, todo=error.todo)
        case errors.InvalidAnswer():
            return Problem(422, "invalid_answer", error.what, todo=error.todo)
        case errors.InterruptPending():
            return Problem(
                409, "question_pending", error.what, todo="Answer it with POST /runs/{id}/resume, or stop the run."
            )
        case errors.InterruptError():
            return Problem(409, "not_asked", error.what, todo=error.todo)
        case errors.NothingToContinue():
            return Problem(409, "nothing_to_continue", error.what, todo=error.todo)
        case errors.ConfigurationError():
            return Problem(422, "not_possible", error.what, todo=error.todo)
        case errors.StoreError(retryable=True) | errors.StoreFull():
            todo = "Send the request again, here or to another server. A stop that is stored already changes nothing."
            return Problem(503, "store_unavailable", error.what, todo=todo, headers=_SOON)
        case _:
            return Problem(409, "failed", error.what, todo=error.todo)


def on_problem(_: Request, error: Exception) -> Response:
    """Starlette's handler for `Problem`."""
    assert isinstance(error, Problem)
    return error.response()


def on_http_error(_: Request, error: Exception) -> Response:
    """Starlette's handler for an unknown path or method."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
    return Problem(error.status_code, code, error.detail, headers=error.headers).response()


def on_client_gone(_: Request, error: Exception) -> Response:  # noqa: ARG001
    """Starlette's handler for a client that disconnected during its request. The response reaches no reader."""
    return Problem(400, "client_gone", "The request was not complete.").response()


def on_crash(request: Request, error: Exception) -> Response:
    """Starlette's handler for a bug of ours. The response has no details; the log has."""
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return Problem(
        500, "internal", "The server could not handle the request.", todo="The server's log has the reason."
    ).response()


HANDLERS: Final = {
    Problem: on_problem,
    HTTPException: on_http_error,
    ClientDisconnect: on_client_gone,
    Exception: on_crash,
}
