"""Headers by host, set on each request of a client: a redirect may lead to a host that must not get them."""

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
    """The headers to send, by host. Raises `ConfigurationError` for headers without a host."""

    def __init__(self, headers: Mapping[str, Mapping[str, str]] | None) -> None:
        by_host = {host: dict(_checked_headers(host, each)) for host, each in (headers or {}).items()}
        self._common: Final = by_host.pop(EVERY_HOST, {})
        self._by_origin: Final = [(_parse_origin(host), each) for host, each in by_host.items()]
        # Not `Host`: httpx2 writes that header for each request.
        self._names: Final = {name.lower() for each in (self._common, *by_host.values()) for name in each} - {"host"}

    def apply_to(self, request: httpx2.Request, defaults: httpx2.Headers) -> None:
        """Set the headers of the request's host, and remove those of other hosts. `defaults` are the client's own."""
        for name in self._names:
            if name in request.headers:
                del request.headers[name]
            if name in defaults:
                request.headers[name] = defaults[name]
        request.headers.update(self._common)
        origin_of_request = _origin(request.url)
        for origin, headers in self._by_origin:
            if origin == origin_of_request:
                request.headers.update(headers)


def _checked_headers(host: str, headers: Any) -> Mapping[str, str]:
    if not isinstance(headers, Mapping):
        raise ConfigurationError(
            f"The header {host!r} has no host.",
            todo='Give headers by host: headers={"api.example.com": {"Authorization": "..."}}; "*" is every host.',
        )
    return cast(Mapping[str, str], headers)


def _parse_origin(host: str) -> _Origin:
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
