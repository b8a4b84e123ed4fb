"""Connections to public addresses only, for requests whose address a model chooses.

The check is made on the address of the connection. A check of the URL, or of an earlier resolution of the name, does
not catch other spellings of an address, redirects, or a name server that changes its answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final, NamedTuple, cast

import anyio
import httpcore2
import httpx2

from ...models.wire.certificates import certificates

_MAX_ATTEMPTS: Final = 4
# Networks that some versions of the standard library count as global, and that are not public.
_NOT_PUBLIC_4: Final = tuple(
    map(
        IPv4Network,
        (
            "100.64.0.0/10",  # shared address space of providers (CGNAT)
            "192.0.0.0/24",  # protocol assignments; metadata of a cloud
            "192.88.99.0/24",  # 6to4 relays
            "168.63.129.16/32",  # the host of a virtual machine, in one cloud
        ),
    )
)
_UNICAST_6: Final = IPv6Network("2000::/3")
_NOT_PUBLIC_6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, and Teredo, which embeds an IPv4 address
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, which embeds an IPv4 address
            "3fff::/20",  # documentation
        ),
    )
)
# IPv4 addresses in IPv6 networks: as public as the embedded address.
_NAT64: Final = IPv6Network("64:ff9b::/96")


class NotPublic(OSError):
    """A host has no public address, and is not in `private_hosts`."""


def is_public(address: str) -> bool:
    """Whether an address can be reached from the whole internet."""
    ip = ip_address(address)
    if isinstance(ip, IPv4Address):
        return ip.is_global and not ip.is_multicast and not any(ip in network for network in _NOT_PUBLIC_4)
    embedded = _embedded_ipv4(ip)
    if embedded is not None:
        return is_public(str(embedded))
    return ip in _UNICAST_6 and not ip.is_private and not any(ip in network for network in _NOT_PUBLIC_6)


def _embedded_ipv4(ip: IPv6Address) -> IPv4Address | None:
    if ip in _NAT64:
        return IPv4Address(ip.packed[-4:])
    return ip.ipv4_mapped


class PrivateHost(NamedTuple):
    """A host that may be reached although its address is not public; with `port`, only there."""

    name: str
    port: int | None

    @classmethod
    def parse(cls, text: str) -> PrivateHost:
        """From `host` or `host:port`; an IPv6 address with a port is in brackets. Raises `ValueError`."""
        try:
            return cls(str(IPv6Address(text)), None)
        except ValueError:
            url = httpx2.URL(f"http://{text}")
        if not url.host or url.raw_path != b"/" or url.userinfo:
            raise ValueError(f"{text!r} is no host")
        explicit = text.rpartition("]")[2].rpartition(":")[2] if ":" in text.rpartition("]")[2] else None
        return cls(_normalised(url.raw_host.decode("ascii")), None if explicit is None else int(explicit))


def _normalised(host: str) -> str:
    return host.lower().rstrip(".")


class PublicNetwork(httpcore2.AsyncNetworkBackend):
    """Resolves each name itself and connects only to public addresses, except for `private_hosts`."""

    def __init__(self, private_hosts: Collection[PrivateHost]) -> None:
        self._private_hosts: Final = frozenset(private_hosts)
        # httpcore2 has a fallback class of the same name, for use without anyio, which hides the type.
        self._inner: Final = cast(httpcore2.AsyncNetworkBackend, httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (the interface's)
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect. Raises `NotPublic`, or what httpcore raises."""
        name = _normalised(host)
        if not self._private_hosts.isdisjoint((PrivateHost(name, None), PrivateHost(name, port))):
            return await self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        addresses = await _public_addresses(host, port, timeout)
        timeout_each = None if timeout is None else timeout / len(addresses)
        failure: Exception | None = None
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, timeout_each, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = failure or error
        assert failure is not None
        raise failure

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await anyio.sleep(seconds)


async def _public_addresses(host: str, port: int, timeout: float | None) -> list[str]:  # noqa: ASYNC109
    import socket

    try:
        with anyio.fail_after(timeout):
            found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError as error:
        raise httpcore2.ConnectTimeout(str(error)) from error
    except OSError as error:
        raise httpcore2.ConnectError(str(error)) from error
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    public = [address for address in addresses if is_public(address)]
    if not public:
        raise NotPublic(f"{host} has no public address, and only public ones are allowed here.")
    return public[:_MAX_ATTEMPTS]


class PublicTransport(httpx2.AsyncHTTPTransport):
    """httpx2's transport over a `PublicNetwork`, with the certificates that httpx2 would use."""

    def __init__(self, private_hosts: Collection[PrivateHost]) -> None:  # pyright: ignore[reportMissingSuperCall]
        # Not through the parent's __init__, whose pool has no check. A parent that looked for its pool elsewhere would
        # find none, rather than connect unchecked.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=certificates(), network_backend=PublicNetwork(private_hosts)
        )
