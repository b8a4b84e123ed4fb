"""From a request to a handler and back: who asks, what they sent, and how it is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..errors import QuiesceError
from .auth import Gate
from .event_log import to_json
from .problems import Problem, problem_of
from .registry import Record, RunRegistry

_T = TypeVar("_T")
_CLOSE: Final = {"Connection": "close"}


class Call:
    """One request: whose it is, and what it asks of the desk."""

    def __init__(self, request: Request, owner: str, desk: RunRegistry, body: bytes) -> None:
        self.request: Final = request
        self.owner: Final = owner
        self.desk: Final = desk
        self._body: Final = body

    @property
    def record(self) -> Record:
        """The run that the path names. Raises `Problem` when this key has none with that id."""
        return self.desk.get(self.owner, self.request.path_params["id"])

    def body(self, kind: type[_T]) -> _T:
        """What was sent, as the type that is expected; a body that was left out counts as `{}`."""
        try:
            return msgspec.json.decode(self._body or b"{}", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            status, code = (422, "invalid") if isinstance(error, msgspec.ValidationError) else (400, "not_json")
            raise Problem(status, code, f"The body cannot be used: {error}.", todo="See /openapi.json.") from None

    def number(self, name: str, kind: Callable[[str], float], *, least: float, most: float) -> float | None:
        """A number from the query, None when it is not there. Raises `Problem` for one that makes no sense."""
        given = self.request.query_params.get(name)
        if given is None:
            return None
        try:
            value = kind(given)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise Problem(422, "invalid", f"`{name}` must be a number from {least:g} to {most:g}.")
        return value


Handler: TypeAlias = Callable[[Call], Awaitable[Response]]


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A struct as JSON."""
    return Response(to_json(value), status, headers, "application/json")


class Endpoints:
    """Turns handlers into what Starlette calls: everything passes the gate, and every error has the same shape."""

    def __init__(self, desk: RunRegistry, gate: Gate) -> None:
        self._desk: Final = desk
        self._gate: Final = gate

    def __call__(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """A handler as an endpoint."""

        async def endpoint(request: Request) -> Response:
            try:
                owner = self._gate.owner(request)
                body = b"" if request.method in ("GET", "HEAD") else await self._read(request)
                return await handler(Call(request, owner, self._desk, body))
            except QuiesceError as error:
                raise problem_of(error) from error

        endpoint.__name__ = handler.__name__
        return endpoint

    async def _read(self, request: Request) -> bytes:
        """The body, unless it is too large, too slow, or not JSON."""
        limit = self._desk.settings.max_body
        declared = request.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > 2 * limit:
            raise _too_large(limit, close=True)
        chunks: list[bytes] = []
        size = 0
        with anyio.move_on_after(self._desk.settings.body_timeout) as patience:
            async for chunk in request.stream():
                size += len(chunk)
                if size > 2 * limit:
                    raise _too_large(limit, close=True)
                # What is a little too large is read to its end and thrown away: a client that is still sending would
                # otherwise see a broken connection in place of the answer.
                if size <= limit:
                    chunks.append(chunk)
        if patience.cancelled_caught:
            raise Problem(408, "too_slow", "The body did not arrive in time.", headers=_CLOSE)
        if size > limit:
            raise _too_large(limit, close=False)
        if size and not _is_json(request):
            raise Problem(415, "not_json", "The body must be sent as application/json.")
        if not size and "content-type" in request.headers and not _is_json(request):
            raise Problem(415, "not_json", "Only application/json is taken.")
        return b"".join(chunks)


def _is_json(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def _too_large(limit: int, *, close: bool) -> Problem:
    return Problem(413, "too_large", f"The body is larger than {limit} bytes.", headers=_CLOSE if close else {})
