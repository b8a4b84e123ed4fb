"""`http_get`: fetch a page.

Its policy is `cancel` with a short grace: a stop closes the connection, and there is nothing to clean up. A GET changes
nothing on the server, so a cut request needs no undo and may be repeated.

The model chooses the address, and a page may redirect to another one. So the tool connects only to public addresses and
to hosts that the developer has named, and each header goes only to its own host.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from ...errors import ConfigurationError, ToolError
from ..tool import Tool
from .host_headers import HostHeaders

if TYPE_CHECKING:
    import httpx2

    from .public_network import PrivateHost

_MAX_SIZE: Final = 200_000


def make_http_get(
    *,
    timeout: float = 30.0,
    max_size: int = _MAX_SIZE,
    headers: Mapping[str, Mapping[str, str]] | None = None,
    private_hosts: Collection[str] = (),
    proxy: str | None = None,
    name: str = "http_get",
) -> Tool:
    """A tool that fetches pages from public addresses.

    timeout        seconds, for the whole call
    max_size       bytes that are read at most
    headers        headers by host: `{"api.example.com": {"Authorization": "..."}}`. A bare host means https on its
                   usual port; use `"http://host:8000"` for another. `"*"` is every host: put nothing secret there
    private_hosts  hosts that may have an address that is not public: `"wiki.corp.example"`, `"localhost:8000"`
    proxy          the address of a proxy, which then decides what can be reached; those of the environment are not used

    Raises `ConfigurationError` for headers without a host, and for invalid hosts.
    """
    host_headers = HostHeaders(headers)
    hosts = _parse_private_hosts(private_hosts)

    async def http_get(url: str) -> str:
        """Fetch a page over HTTP and get its text.

        Args:
            url: the address, beginning with http:// or https://
        """
        return await _fetch(url, partial(_client, host_headers, hosts, proxy, timeout), max_size)

    return Tool(http_get, name=name, on_stop="cancel", grace=0.5, timeout=timeout)


async def _fetch(url: str, make_client: Callable[[], httpx2.AsyncClient], max_size: int) -> str:
    """Fetch a page with a client of its own. Raises `ToolError`."""
    import httpx2

    from .public_network import NotPublic

    if not url.lower().startswith(("http://", "https://")):
        raise ToolError(f"{url!r} is not an http address.")
    try:
        async with make_client() as client, client.stream("GET", url) as response:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > max_size:
                    break
            return _page_text(response.status_code, response.reason_phrase, response.encoding, bytes(body), max_size)
    except NotPublic as error:
        raise ToolError(f"{url} could not be fetched: {error}") from None
    # An invalid port is found late, below the client, and raises a group.
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError, ExceptionGroup) as error:
        raise ToolError(f"{url} could not be fetched: {_error_text(error)}") from None


def _parse_private_hosts(private_hosts: Collection[str]) -> list[PrivateHost]:
    if isinstance(private_hosts, str):
        raise ConfigurationError("private_hosts is a list of hosts.", todo=f"Use [{private_hosts!r}].")
    if not private_hosts:  # `http_get` is made when this module is imported, which must be quick
        return []
    import httpx2

    from .public_network import PrivateHost

    try:
        return [PrivateHost.parse(host) for host in private_hosts]
    except (ValueError, httpx2.InvalidURL) as error:
        raise ConfigurationError(
            f"private_hosts cannot be read: {error}.", todo='Use "host" or "host:port", without http://.'
        ) from None


def _client(
    headers: HostHeaders, private_hosts: Collection[PrivateHost], proxy: str | None, timeout: float
) -> httpx2.AsyncClient:
    import httpx2

    from ...models.wire.certificates import certificates
    from .public_network import PublicTransport

    # trust_env: a proxy of the environment would connect to any address, unchecked.
    options: dict[str, Any] = {"follow_redirects": True, "timeout": timeout, "trust_env": False}
    if proxy is None:
        options["transport"] = PublicTransport(private_hosts)
    else:
        options |= {"proxy": proxy, "verify": certificates()}
    client = httpx2.AsyncClient(**options)

    async def set_headers(request: httpx2.Request) -> None:
        headers.apply_to(request, client.headers)

    client.event_hooks = {"request": [set_headers]}  # called for each redirect too
    return client


def _error_text(error: Exception) -> str:
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return f"{type(error).__name__}: {error}"


def _page_text(status: int, reason: str, encoding: str | None, body: bytes, max_size: int) -> str:
    try:
        text = body[:max_size].decode(encoding or "utf-8", "replace")
    except (LookupError, UnicodeError):  # a codec of Python that is no charset, such as hex
        text = body[:max_size].decode("utf-8", "replace")
    heading = "" if status == 200 else f"[{status} {reason}]\n"
    ending = f"\n[cut after {max_size:,} bytes]" if len(body) > max_size else ""
    return f"{heading}{text}{ending}"


http_get: Final = make_http_get()
