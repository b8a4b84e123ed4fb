"""A fake provider, in a process of its own: OpenAI's Chat Completions and Responses and Anthropic's Messages, streamed.

It prints its port. `PUT /script` sets what the model says next: a JSON list with one entry for each request, such as
`{"text": "Hello.", "calls": [["weather", {"town": "Bergen"}]], "stalls": true}`. A stalled answer sends its text and
then nothing, until its client hangs up. When the script has ended, the model says `OTHERWISE`.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import urllib.request
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.side_by_side import wire
from bench.side_by_side.answers import Answer

OTHERWISE = "This is an answer."
_script: deque[Answer] = deque()
_numbers = itertools.count(1)


class Provider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each event waits up to 40 ms for the acknowledgement of the one before
    timeout = 20  # a page that never hangs up is wrong

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""

    def do_PUT(self) -> None:
        _script.clear()
        _script.extend(_answer(entry) for entry in self._body())
        self._send(200, {})

    def do_POST(self) -> None:
        body = self._body()
        kind = self.path.rpartition("/v1/")[2]
        if kind not in _STREAMS:
            self._send(404, {"error": {"message": f"There is no {self.path} here.", "type": "not_found_error"}})
            return
        answer = _script.popleft() if _script else _answer({"text": OTHERWISE})
        self._stream(*_STREAMS[kind](body["model"], answer), stalls=answer.stalls)

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["content-length"])))

    def _send(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, begin: Iterator[bytes], end: Iterator[bytes], *, stalls: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for event in begin:
                self._chunk(event)
            if stalls:
                self.rfile.read(1)  # returns when the client hangs up
                self.close_connection = True
                return
            for event in end:
                self._chunk(event)
            self._chunk(b"")
        except ConnectionError:
            self.close_connection = True

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


def _answer(entry: dict[str, Any]) -> Answer:
    pieces = tuple(re.findall(r"\S+\s*", entry.get("text", "")))  # a word to a piece, as models stream them
    calls = [(name, arguments) for name, arguments in entry.get("calls", [])]
    return Answer(pieces, calls, stalls=entry.get("stalls", False))


def _chat(model: str, answer: Answer) -> tuple[Iterator[bytes], Iterator[bytes]]:
    return wire.chat_begin(model, answer), wire.chat_end(model, answer)


def _responses(model: str, answer: Answer) -> tuple[Iterator[bytes], Iterator[bytes]]:
    stream = wire.ResponseStream(model, answer)
    return stream.begin(), stream.end()


# --- Anthropic's Messages -------------------------------------------------------------------------------------------


def _messages(model: str, answer: Answer) -> tuple[Iterator[bytes], Iterator[bytes]]:
    return _messages_begin(model, answer), _messages_end(answer)


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _messages_begin(model: str, answer: Answer) -> Iterator[bytes]:
    message = {"id": f"msg_{next(_numbers)}", "type": "message", "role": "assistant", "model": model, "content": []}
    yield _event(
        "message_start",
        message={**message, "stop_reason": None, "usage": {"input_tokens": 20, "output_tokens": 1}},
    )
    if answer.pieces:
        yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for piece in answer.pieces:
        yield _event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})


def _messages_end(answer: Answer) -> Iterator[bytes]:
    index = 0
    if answer.pieces:
        yield _event("content_block_stop", index=0)
        index = 1
    for at, (name, arguments) in enumerate(answer.calls, start=index):
        block = {"type": "tool_use", "id": f"toolu_{next(_numbers)}", "name": name, "input": {}}
        yield _event("content_block_start", index=at, content_block=block)
        yield _event(
            "content_block_delta", index=at, delta={"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        )
        yield _event("content_block_stop", index=at)
    reason = "tool_use" if answer.calls else "end_turn"
    yield _event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 10})
    yield _event("message_stop")


_STREAMS = {"chat/completions": _chat, "responses": _responses, "messages": _messages}


# --- For the programs that use it -----------------------------------------------------------------------------------


@contextmanager
def fake_provider() -> Iterator[str]:
    """The address of a provider that runs until the block is left."""
    command = [sys.executable, "-m", "tests.support.fake_provider"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def environment(address: str) -> dict[str, str]:
    """The variables that lead `openai:`, `openai-responses:` and `anthropic:` to the provider."""
    return {
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": "sk-fake",
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": "sk-fake",
    }


def say_next(address: str, script: list[dict[str, Any]]) -> None:
    """Set the answers to the next requests."""
    request = urllib.request.Request(f"{address}/script", json.dumps(script).encode(), method="PUT")
    urllib.request.urlopen(request).close()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 0), Provider)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()
