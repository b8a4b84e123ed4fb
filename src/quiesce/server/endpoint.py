"""From an HTTP request to a handler and back: authentication, the body, and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..errors import QuiesceError
from .auth import Authenticator
from .event_log import to_json
from .problems import Problem, problem_of
from .registry import ServedRun
from .schemas import AuditAction
from .services import Services

_T = TypeVar("_T")
_CLOSE: Final = {"Connection": "close"}


class ApiRequest:
    """An authenticated request: its owner, its body, and the services that answer it. `http` is Starlette's."""

    def __init__(
        self,
        http: Request,
        owner: str,
        services: Services,
        body: bytes,
        run: ServedRun | None = None,
        *,
        is_operator: bool = False,
    ) -> None:
        self.http: Final = http
        self.owner: Final = owner
        self.is_operator: Final = is_operator
        self.services: Final = services
        self._body: Final = body
        self._run: Final = run

    @property
    def run(self) -> ServedRun:
        """The run that the path names. Raises `Problem` when the owner has none with that id."""
        return self._run or self.services.runs.get(self.owner, self.http.path_params["id"])

    def note(
        self, action: AuditAction, run: ServedRun | None = None, detail: str = "", *, session: str | None = None
    ) -> None:
        """Note in the audit what this request has done."""
        audit = self.services.records.audit
        if run is None:
            audit.note(self.owner, action, session=session, detail=detail)
        else:
            audit.note_run(action, run.id, run.info, detail)

    def body(self, kind: type[_T]) -> _T:
        """The body as the expected type; an empty body counts as `{}`. Raises `Problem`."""
        try:
            return msgspec.json.decode(self._body or b"{}", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            status, code = (422, "invalid") if isinstance(error, msgspec.ValidationError) else (400, "not_json")
            raise Problem(status, code, f"The body is not valid: {error}.", todo="See /openapi.json.") from None

    def number(self, name: str, kind: Callable[[str], float], *, least: float, most: float) -> float | None:
        """A number from the query; None when it is not there. Raises `Problem` for an invalid one."""
        text = self.http.query_params.get(name)
        if text is None:
            return None
        try:
            value = kind(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise Problem(422, "invalid", f"`{name}` must be a number from {least:g} to {most:g}.")
        return value

    def check_operator(self) -> None:
        """Raise `Problem` for a key that may read only what is its own."""
        if not self.is_operator:
            message = "This key may read only its own usage."
            raise Problem(
                403, "not_operator", message, todo="Start the server with --operator and the name of the key."
            )

    def wait_seconds(self) -> float | None:
        """The value of `?wait=`; None when it is not there. Raises `Problem` for an invalid one."""
        return self.number("wait", float, least=0, most=self.services.settings.max_wait)


Handler: TypeAlias = Callable[[ApiRequest], Awaitable[Response]]


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A response with a struct as JSON."""
    return Response(to_json(value), status, headers, "application/json")


class Endpoints:
    """Turns handlers into Starlette endpoints: every request is authenticated, and every error has the same shape."""

    def __init__(self, services: Services, authenticator: Authenticator) -> None:
        self._services: Final = services
        self._authenticator: Final = authenticator

    def __call__(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """A handler as an endpoint."""

        async def endpoint(http: Request) -> Response:
            try:
                owner = self._authenticator.owner(http)
                _refuse_null_characters(http)
                body = b"" if http.method in ("GET", "HEAD") else await self._read_body(http)
                run = await self._find_run(owner, http.path_params.get("id"))
                is_operator = self._authenticator.is_operator(owner)
                return await handler(ApiRequest(http, owner, self._services, body, run, is_operator=is_operator))
            except QuiesceError as error:
                raise problem_of(error) from error

        endpoint.__name__ = handler.__name__
        return endpoint

    async def _find_run(self, owner: str, run_id: str | None) -> ServedRun | None:
        """The run that a path names, in memory or in the store. The routes of a fleet look runs up themselves."""
        if self._services.fleet is not None:
            return None
        await self._services.history.load(owner)
        return None if run_id is None else await self._services.history.run(owner, run_id)

    async def _read_body(self, http: Request) -> bytes:
        """The body. Raises `Problem` when it is too large, too slow, or not JSON."""
        limit = self._services.settings.max_body
        declared = http.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > 2 * limit:
            raise _too_large(limit, close=True)
        chunks: list[bytes] = []
        size = 0
        with anyio.move_on_after(self._services.settings.body_timeout) as timeout:
            async for chunk in http.stream():
                size += len(chunk)
                if size > 2 * limit:
                    raise _too_large(limit, close=True)
                # A body that is a little too large is read to its end and discarded: a client that is still sending
                # would otherwise see a broken connection instead of the response.
                if size <= limit:
                    chunks.append(chunk)
        if timeout.cancelled_caught:
            raise Problem(408, "too_slow", "The body did not arrive in time.", headers=_CLOSE)
        if size > limit:
            raise _too_large(limit, close=False)
        if size and not _is_json(http):
            raise Problem(415, "not_json", "The body must be sent as application/json.")
        if not size and "content-type" in http.headers and not _is_json(http):
            raise Problem(415, "not_json", "Only application/json is accepted.")
        return b"".join(chunks)


def _refuse_null_characters(http: Request) -> None:
    """Raise `Problem` for an address with a null character: Postgres has no texts with one."""
    if "\0" in http.scope["path"]:
        raise Problem(404, "not_found", "There is nothing at an address with a null character.")
    if b"%00" in http.scope["query_string"]:
        raise Problem(422, "invalid", "The query has a null character.", todo="Leave it out.")


def _is_json(http: Request) -> bool:
    return http.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def _too_large(limit: int, *, close: bool) -> Problem:
    return Problem(413, "too_large", f"The body is larger than {limit} bytes.", headers=_CLOSE if close else {})
