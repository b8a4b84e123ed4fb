"""Who may come in: keys, and nothing that another web site makes a browser send."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from starlette.requests import Request

from .keys import Keys
from .problems import Problem

# Who a request comes from, in the words of the application that Quiesce is mounted in; None refuses it.
OwnerOf: TypeAlias = Callable[[Request], "str | None"]

ANONYMOUS: Final = "local"
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


class Gate:
    """Decides whose request this is, or refuses it.

    With neither keys nor an `owner_of` of the application's own, only this machine is let in: a loopback client, that
    asked for a loopback host (so that no foreign name that points here will do), and not through a proxy.
    """

    def __init__(self, keys: Keys | None, owner_of: OwnerOf | None, origins: tuple[str, ...]) -> None:
        self._keys: Final = keys
        self._owner_of: Final = owner_of
        self._origins: Final = frozenset(origins)

    def owner(self, request: Request) -> str:
        """Whose request this is. Raises `Problem` for one that may not come in."""
        self._refuse_other_sites(request)
        if self._owner_of is not None:
            owner = self._owner_of(request)
        elif self._keys is not None:
            owner = self._keys.owner(_bearer(request))
        else:
            return _anonymous(request)
        if owner is None:
            raise Problem(
                401,
                "unauthorized",
                "A valid API key is needed.",
                todo="Send it as `Authorization: Bearer <key>`.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return owner

    def _refuse_other_sites(self, request: Request) -> None:
        """A page of another site can make a browser post here, with no more harm to it than not seeing the answer."""
        origin = request.headers.get("origin")
        if origin is not None and origin in self._origins:
            return
        site = request.headers.get("sec-fetch-site")
        foreign = site is not None and site not in ("same-origin", "none")
        if origin is not None and urlsplit_host(origin) != request.headers.get("host", "").lower():
            foreign = True
        if foreign:
            raise Problem(
                403,
                "cross_site",
                "This request was made by a page of another site.",
                todo="If that site is yours, start the server with its origin in cors_origins.",
            )


def urlsplit_host(origin: str) -> str:
    """The host and port that an origin names; empty for one that makes no sense."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own."""
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
    proxied = any(header in request.headers for header in _FORWARDED)
    if proxied or not is_loopback(client) or not is_loopback(name):
        raise Problem(
            401,
            "unauthorized",
            "Without API keys this server answers to its own machine alone.",
            todo="Start it with --key-file, and send the key as `Authorization: Bearer <key>`.",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return ANONYMOUS
