"""A provider that does its worst: the first part of the path says what."""

from __future__ import annotations

import gzip
import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
SECONDS = 6.0


def event(delta: dict[str, Any], **more: Any) -> bytes:
    """A chunk of OpenAI's chat format."""
    return b"data: " + json.dumps({"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta}], **more}).encode()


def spoken(text: str) -> tuple[bytes, bytes]:
    """A piece of text, in the two formats."""
    block = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return event({"content": text}) + b"\n\n", b"data: " + json.dumps(block).encode() + b"\n\n"


def begun(kind: str) -> bytes:
    if kind == "openai":
        return b""
    start = {"type": "message_start", "message": {"id": "x", "model": "m", "usage": {"input_tokens": 1}}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in (start, block))


class Peer:
    """One connection: `send` in plain HTTP without a length, so that it ends when the connection does."""

    def __init__(self, handler: socketserver.StreamRequestHandler, kind: str) -> None:
        self.kind = kind
        self._file = handler.wfile
        self._until = time.monotonic() + SECONDS

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self._until

    def send(self, data: bytes) -> None:
        self._file.write(data)

    def stream(self, extra: bytes = b"") -> None:
        self.send(SSE + extra + b"connection: close\r\n\r\n")

    def flood(self, data: bytes) -> None:
        while self.goes_on:
            self.send(data)

    def of_kind(self, both: tuple[bytes, bytes]) -> bytes:
        return both[self.kind == "anthropic"]


def endless(peer: Peer) -> None:
    peer.stream()
    peer.send(begun(peer.kind))
    peer.flood(peer.of_kind(spoken("x" * 4000)) * 16)


def small_pieces(peer: Peer) -> None:
    peer.stream()
    peer.send(begun(peer.kind))
    peer.flood(peer.of_kind(spoken("x")) * 500)


def huge_line(peer: Peer) -> None:
    peer.stream()
    peer.send(b'data: {"x": "')
    peer.flood(b"y" * 65536)


def no_line_end_header(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nx-filler: ")
    peer.flood(b"y" * 65536)


def many_calls(peer: Peer) -> None:
    peer.stream()
    peer.send(begun(peer.kind))
    for first in range(0, 100_000, 100):
        numbers = range(first, first + 100)
        if peer.kind == "openai":
            calls = [
                {"index": n, "id": f"c{n}", "function": {"name": "echo", "arguments": '{"word": "a"}'}} for n in numbers
            ]
            peer.send(event({"tool_calls": calls}) + b"\n\n")
        else:
            for n in numbers:
                block = {"type": "tool_use", "id": f"c{n}", "name": "echo", "input": {}}
                for each in (
                    {"type": "content_block_start", "index": n + 1, "content_block": block},
                    {"type": "content_block_stop", "index": n + 1},
                ):
                    peer.send(b"data: " + json.dumps(each).encode() + b"\n\n")
    peer.send(b"data: [DONE]\n\n" if peer.kind == "openai" else b'data: {"type": "message_stop"}\n\n')


def deep_json(peer: Peer) -> None:
    peer.stream()
    peer.send(begun(peer.kind))
    peer.send(b'data: {"choices": ' + b"[" * 1_000_000 + b"\n\n")
    peer.send(event({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "echo", "arguments": ""}}]}) + b"\n\n")
    deep = {"tool_calls": [{"index": 0, "function": {"arguments": '{"word": ' + "[" * 1_000_000}}]}
    peer.send(event(deep) + b"\n\ndata: [DONE]\n\n")


def endless_error(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 500 Oh\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{")
    peer.flood(b"z" * 65536)


def slow_bytes(peer: Peer) -> None:
    for byte in SSE + b"\r\n" + b"".join(spoken("slow")) * 100:
        if not peer.goes_on:
            return
        peer.send(bytes([byte]))
        time.sleep(0.005)


def bad_chunks(peer: Peer) -> None:
    peer.send(SSE + b"transfer-encoding: chunked\r\n\r\n")
    peer.send(b"5\r\ndata:\r\nfffffffffffffffffff\r\nxx\r\n-3\r\n")


def bomb(peer: Peer) -> None:
    packed = gzip.compress(b"\0" * (64 << 20))
    peer.stream(b"content-encoding: gzip\r\n")
    peer.flood(packed)


def bomb_in_error(peer: Peer) -> None:
    packed = gzip.compress(b"\0" * (64 << 20))
    peer.send(b"HTTP/1.1 500 Oh\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n")
    peer.flood(packed)


def absurd_usage(peer: Peer) -> None:
    peer.stream()
    peer.send(begun(peer.kind))
    for count in ("1e308", "-5", "9" * 5000, '"many"', "NaN", "[1]"):
        if peer.kind == "openai":
            usage = b'"usage": {"prompt_tokens": %s, "completion_tokens": %s}' % (count.encode(), count.encode())
            peer.send(b'data: {"choices": [], %s}\n\n' % usage)
        else:
            usage = b'"usage": {"output_tokens": %s}' % count.encode()
            peer.send(b'data: {"type": "message_delta", "delta": {}, %s}\n\n' % usage)
    peer.send(peer.of_kind(spoken("Hello.")))


ATTACKS: dict[str, Callable[[Peer], None]] = {
    each.__name__: each
    for each in (
        endless, small_pieces, huge_line, no_line_end_header, many_calls, deep_json, endless_error, slow_bytes,
        bad_chunks, bomb, bomb_in_error, absurd_usage,
    )
}  # fmt: skip


class _Handler(socketserver.StreamRequestHandler):
    timeout = 20

    def handle(self) -> None:
        with suppress(OSError):
            path = self.rfile.readline().split()[1].decode()
            length = 0
            while (line := self.rfile.readline().strip().lower()) != b"":
                if line.startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            self.rfile.read(length)
            kind = "anthropic" if "messages" in path else "openai"
            ATTACKS[path.split("/")[1]](Peer(self, kind))


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def hostile_provider() -> Iterator[str]:
    """The address of one, in threads of this process."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
