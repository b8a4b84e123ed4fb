"""The answers of `bench._server` over TLS, by Hypercorn, which speaks HTTP/1.1 and HTTP/2.

`python -m bench.rows.tls_server PORT FOLDER`: writes the certificates into the folder, and serves.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from pathlib import Path
from typing import Any

import trustme
from hypercorn.asyncio import serve
from hypercorn.config import Config

from .._openai import unchunked
from .._server import answer_to


@functools.lru_cache
def _long(kind: str) -> list[bytes]:
    return unchunked(answer_to(kind, b""))


async def _application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    kind = scope["path"].split("/")[1]
    found = _long(kind) if kind.startswith("chunks-") else unchunked(answer_to(kind, body))
    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for piece in found:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _certificates(folder: Path) -> Config:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    key, chain = folder / "key.pem", folder / "chain.pem"
    certificate.private_key_pem.write_to_path(str(key))
    for each in certificate.cert_chain_pems:
        each.write_to_path(str(chain), append=True)
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    config = Config()
    config.keyfile, config.certfile = str(key), str(chain)
    config.alpn_protocols = ["h2", "http/1.1"]
    config.accesslog = config.errorlog = None
    config.keep_alive_timeout = 600
    config.h2_max_inbound_frame_size = 2**20
    return config


def main(port: int, folder: Path) -> None:
    """The whole program."""
    config = _certificates(folder)
    config.bind = [f"127.0.0.1:{port}"]
    asyncio.run(serve(_application, config))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
