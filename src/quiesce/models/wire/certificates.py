"""The certificates to trust. Reading them takes about 30 ms of processor time: a process does it once, if at all."""

from __future__ import annotations

import functools
import ssl

import httpx2


@functools.cache
def certificates() -> ssl.SSLContext:
    """Those that httpx2 would use, for all clients of the process."""
    context = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


@functools.cache
def _no_certificates() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def certificates_for(url: str) -> ssl.SSLContext:
    """For a client of one server. When that has an http address nothing is read, and no certificate is trusted."""
    return _no_certificates() if url.lower().startswith("http:") else certificates()
