"""Authentication of requests: API keys, and a check against cross-site requests."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from starlette.requests import Request

from ..errors import ConfigurationError
from .keys import Keys
from .peer import is_of_another_user
from .problems import Problem

# A function of the application that Quiesce is mounted in: the owner of a request; None or "" refuses the request.
OwnerOf: TypeAlias = Callable[[Request], "str | None"]

ANONYMOUS: Final = "local"
_FORWARDED: Final = (
    *("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"),
    *("via", "cf-connecting-ip", "true-client-ip"),
)


class Authenticator:
    """Finds the owner of a request, or refuses the request.

    With neither keys nor `owner_of`, only requests from this machine are accepted: from a loopback client, to a
    loopback host (a foreign name that resolves to this machine is refused), and not through a proxy. Many proxies add
    no header that shows them; on Linux one that runs as another user is seen all the same.
    """

    def __init__(
        self,
        keys: Keys | None,
        owner_of: OwnerOf | None,
        origins: tuple[str, ...],
        operators: tuple[str, ...] = (),
    ) -> None:
        self._keys: Final = keys
        self._owner_of: Final = owner_of
        self._origins: Final = frozenset(origins)
        is_local = keys is None and owner_of is None
        self._operators: Final = frozenset((*operators, *((ANONYMOUS,) if is_local else ())))
        unknown = self._operators.difference(keys.names) if keys is not None and owner_of is None else ()
        if unknown:
            raise ConfigurationError(
                f"There is no API key {min(unknown)!r} for an operator.", todo="Name one of the keys of this server."
            )

    def is_operator(self, owner: str) -> bool:
        """Whether an owner may read the usage of all. The only user of a server without keys may."""
        return owner in self._operators

    def owner(self, request: Request) -> str:
        """The owner of a request. Raises `Problem` for a request without access."""
        self._refuse_cross_site(request)
        if self._owner_of is not None:
            owner = self._owner_of(request)
        elif self._keys is not None:
            owner = self._keys.owner(_bearer(request))
        else:
            return _anonymous(request)
        if owner is not None and not isinstance(owner, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"owner_of returned {type(owner).__name__}; it must return a text, or None")
        if not owner:
            raise _unauthorized("A valid API key is needed.", "Send it as `Authorization: Bearer <key>`.")
        return owner

    def _refuse_cross_site(self, request: Request) -> None:
        """Refuse requests that a page of another site makes a browser send: without this, it could start runs."""
        origin = request.headers.get("origin")
        if origin is not None and origin in self._origins:
            return
        site = request.headers.get("sec-fetch-site")
        foreign = site is not None and site not in ("same-origin", "none")
        if origin is not None and urlsplit_host(origin) != request.headers.get("host", "").lower():
            foreign = True
        if foreign:
            todo = "If that site is yours, start the server with its origin in cors_origins."
            raise Problem(403, "cross_site", "This request comes from a page of another site.", todo=todo)


def urlsplit_host(origin: str) -> str:
    """The host and port of an origin; empty for an invalid one."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether a host name or address is a loopback one."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _bearer(request: Request) -> str:
    given = request.headers.getlist("authorization")
    scheme, _, key = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return key.strip() if scheme.lower() == "bearer" else ""


def _anonymous(request: Request) -> str:
    client = request.client.host if request.client is not None else ""
    host = urlsplit_host("http://" + request.headers.get("host", ""))
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    proxied = any(header in request.headers for header in _FORWARDED) or _is_of_another_user(request)
    if proxied or not is_loopback(client) or not is_loopback(name):
        raise _unauthorized(
            "This server has no API keys, so it accepts only requests of its own user, from its own machine.",
            "Start it with --key-file, and send the key as `Authorization: Bearer <key>`.",
        )
    return ANONYMOUS


def _unauthorized(message: str, todo: str) -> Problem:
    return Problem(401, "unauthorized", message, todo=todo, headers={"WWW-Authenticate": "Bearer"})


def _is_of_another_user(request: Request) -> bool:
    client, server = request.client, request.scope.get("server")
    if client is None or server is None or server[1] is None:  # not over TCP
        return False
    return is_of_another_user((client.host, client.port), (server[0], server[1]))
