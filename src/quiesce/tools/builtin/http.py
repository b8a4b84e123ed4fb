"""`http_get`: fetch a page.

Its policy is `cancel` with no grace to speak of: a stop closes the connection, and there is nothing to clean up. A GET
changes nothing on the other side, so a cut one needs no undo and may be made again.

The model chooses the address, and a page may choose the next one. So only public addresses are connected to, and hosts
that the developer has named; and a header goes to its own host and to no other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
    headers        what to send to which host: `{"api.example.com": {"Authorization": "..."}}`. A bare host means https
                   on its usual port; give `"http://host:8000"` for another. `"*"` is every host: nothing secret there
    private_hosts  hosts that may have an address that is not public: `"wiki.corp.example"`, `"localhost:8000"`
    proxy          the address of a proxy. It then decides what can be reached. Those of the environment are not used

    Raises `ConfigurationError` for headers without a host, and for hosts that are none.
    """
    chosen = HostHeaders(headers)
    named = _named(private_hosts)

    async def http_get(url: str) -> str:
        """Fetch a page over HTTP and get its text.

        Args:
            url: the address, beginning with http:// or https://
        """
        import httpx2

        from .public_network import NotPublic

        if not url.lower().startswith(("http://", "https://")):
            raise ToolError(f"{url!r} is not an http address.")
        try:
            async with (
                _client(chosen, named, proxy, timeout) as client,
                client.stream("GET", url) as response,
            ):
                body = bytearray()
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) >= max_size:
                        break
                return _told(response.status_code, response.reason_phrase, response.encoding, bytes(body), max_size)
        except NotPublic as error:
            raise ToolError(f"{url} could not be fetched: {error}") from None
        # The group is what comes of a port that cannot be: that is found late, below the client.
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError, ExceptionGroup) as error:
            raise ToolError(f"{url} could not be fetched: {_why(error)}") from None

    return Tool(http_get, name=name, on_stop="cancel", grace=0.5, timeout=timeout)


def _named(private_hosts: Collection[str]) -> list[PrivateHost]:
    if isinstance(private_hosts, str):
        raise ConfigurationError("private_hosts is a list of hosts.", todo=f"Use [{private_hosts!r}].")
    if not private_hosts:  # the ready tool is made when its module is imported, and that must be quick
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

    from .public_network import PublicTransport

    # A proxy of the environment would connect to whatever it is asked for, unchecked: trust_env.
    options: dict[str, Any] = {"follow_redirects": True, "timeout": timeout, "trust_env": False}
    if proxy is None:
        options["transport"] = PublicTransport(private_hosts)
    else:
        options |= {"proxy": proxy, "verify": httpx2.create_ssl_context()}
    client = httpx2.AsyncClient(**options)

    async def put_headers(request: httpx2.Request) -> None:
        headers.put_on(request, client.headers)

    client.event_hooks = {"request": [put_headers]}  # called for each redirect too
    return client


def _why(error: Exception) -> str:
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return f"{type(error).__name__}: {error}"


def _told(status: int, reason: str, encoding: str | None, body: bytes, max_size: int) -> str:
    text = body[:max_size].decode(encoding or "utf-8", "replace")
    heading = "" if status == 200 else f"[{status} {reason}]\n"
    ending = f"\n[cut after {max_size:,} bytes]" if len(body) >= max_size else ""
    return f"{heading}{text}{ending}"


http_get: Final = make_http_get()
