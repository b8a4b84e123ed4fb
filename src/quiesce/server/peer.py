"""The user whose process has opened a connection from this machine, as Linux tells it.

The kernel is asked about the one connection, which takes the same time however many there are: this is on the way of
every stop. Reading /proc/net/tcp would list all of them.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from typing import Final

# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBBBI")
_ADDRESSES: Final = struct.Struct("!HH16s16s")
_NO_COOKIE: Final = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_USER: Final = struct.Struct("=I")
_USER_AT: Final = _HEADER.size + 64


def is_of_another_user(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """Whether a connection over the loopback comes from a process of another user, such as a proxy.

    False when that cannot be seen, as on systems other than Linux.
    """
    try:
        user = _user_of(client, server)
    except (OSError, ValueError, AttributeError):  # no such connection here, no address, no netlink
        return False
    return user is not None and user != os.getuid()


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address; that of IPv4 for one that a socket of IPv6 shows."""
    address = ipaddress.ip_address(host)
    return address if address.version == 4 else address.ipv4_mapped or address


def _user_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The user of the socket whose own end is `client`; None when the kernel knows no such socket."""
    source, target = _address(client[0]), _address(server[0])
    family = socket.AF_INET if source.version == 4 else socket.AF_INET6
    ends = _ADDRESSES.pack(client[1], server[1], source.packed.ljust(16, b"\0"), target.packed.ljust(16, b"\0"))
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + ends + _NO_COOKIE
    head = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as kernel:
        kernel.send(head + body)
        answer = kernel.recv(4096, socket.MSG_DONTWAIT)
    _, kind, _, _, _ = _HEADER.unpack_from(answer)
    return _USER.unpack_from(answer, _USER_AT)[0] if kind == _SOCK_DIAG_BY_FAMILY else None
