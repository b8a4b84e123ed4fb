"""Which HTTP requests an MCP server of agents accepts: with an API key, from this machine, or for named hosts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from starlette.requests import Request

    from ..server.keys import Keys

_OWNER: Final = "quiesce.owner"


def check_public(host: str, keys: Keys | None, allowed_hosts: Sequence[str]) -> None:
    """Raises `ConfigurationError` for an address that other machines reach, with neither keys nor host names."""
    from ..server.auth import is_loopback

    if keys is None and not allowed_hosts and not is_loopback(host):
        raise ConfigurationError(
            f"{host} can be reached from other machines, and there are no API keys.",
            todo="Pass keys=..., or listen on 127.0.0.1. With a login elsewhere, pass allowed_hosts=[...].",
        )


def owner_of(request: Any) -> str:
    """The owner of the API key that a request came with; empty without keys."""
    return getattr(request, "scope", {}).get(_OWNER, "")


class AccessCheck:
    """ASGI middleware: refuses requests without access, and requests that a page of another site makes.

    With keys, a request needs one of them. Without, it must come from this machine, unless its `Host` is allowed.
    """

    def __init__(
        self, app: Callable[..., Awaitable[None]], keys: Keys | None = None, allowed_hosts: Sequence[str] = ()
    ) -> None:
        from ..server.auth import Authenticator

        self._app: Final = app
        self._allowed: Final = frozenset(host.lower() for host in allowed_hosts)
        self._has_keys: Final = keys is not None
        owner = None if keys is not None or not allowed_hosts else self._of_allowed_host
        self._authenticator: Final = Authenticator(keys, owner, ())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from starlette.requests import Request

        from ..server.problems import Problem

        try:
            owner = self._authenticator.owner(Request(scope))
        except Problem as refused:
            await refused.response()(scope, receive, send)
            return
        scope[_OWNER] = owner if self._has_keys else ""
        await self._app(scope, receive, send)

    def _of_allowed_host(self, request: Request) -> str | None:
        host = request.headers.get("host", "").lower()
        return host if host in self._allowed or host.rpartition(":")[0] in self._allowed else None
