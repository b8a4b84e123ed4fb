"""Headers for some hosts and not for others, on each request of a client: redirects lead to hosts that nobody chose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from ...errors import ConfigurationError

if TYPE_CHECKING:
    import httpx2

EVERY_HOST: Final = "*"
_PORTS: Final = {"http": 80, "https": 443}
_Origin = tuple[str, str, int | None]


class HostHeaders:
    """What the developer wants sent, by host. Raises `ConfigurationError` for headers without a host."""

    def __init__(self, headers: Mapping[str, Mapping[str, str]] | None) -> None:
        given = {host: dict(_checked(host, each)) for host, each in (headers or {}).items()}
        self._for_all: Final = given.pop(EVERY_HOST, {})
        self._given: Final = [(_origin_of(host), each) for host, each in given.items()]
        # Whose host is which is httpx2's business: it writes that header anew for each request.
        self._names: Final = {name.lower() for each in (self._for_all, *given.values()) for name in each} - {"host"}

    def put_on(self, request: httpx2.Request, usual: httpx2.Headers) -> None:
        """Give a request the headers of its host, and take away those of another. `usual` is what a client sends."""
        for name in self._names:
            if name in request.headers:
                del request.headers[name]
            if name in usual:
                request.headers[name] = usual[name]
        request.headers.update(self._for_all)
        here = _origin(request.url)
        for origin, headers in self._given:
            if origin == here:
                request.headers.update(headers)


def _checked(host: str, headers: Any) -> Mapping[str, str]:
    if not isinstance(headers, Mapping):
        raise ConfigurationError(
            f"It is not said for which host the header {host!r} is.",
            todo='Give headers by host: headers={"api.example.com": {"Authorization": "..."}}; "*" is every host.',
        )
    return cast(Mapping[str, str], headers)


def _origin_of(host: str) -> _Origin:
    import httpx2

    try:
        url = httpx2.URL(host if "://" in host else f"https://{host}")
    except httpx2.InvalidURL as error:
        raise ConfigurationError(f"{host!r} is no host for headers: {error}.") from None
    if not url.host or url.scheme not in _PORTS or url.raw_path != b"/":
        raise ConfigurationError(
            f"{host!r} is no host for headers.", todo='Use "api.example.com" or "http://localhost:8000".'
        )
    return _origin(url)


def _origin(url: httpx2.URL) -> _Origin:
    return url.scheme, url.host.lower().rstrip("."), url.port or _PORTS.get(url.scheme)
