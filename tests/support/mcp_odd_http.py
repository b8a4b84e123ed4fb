"""A streamable HTTP MCP server of before 2026-07-28, by hand, in the test's own loop: it does what a test asks for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

TOOLS = ("add", "big", "break_off", "drop", "status", "wait")


class OddHttpServer:
    """`refuse` is the status of every answer; `deaf` keeps it from answering notifications."""

    def __init__(self) -> None:
        self.port = 0
        self.sessions: list[str] = []
        self.known: set[str] = set()
        self.refuse: int | None = None
        self.deaf = False
        self.unknown_session = ""
        """What the TypeScript SDK says, with status 400, about a session that it does not know. Else it is 404."""
        self.refuse_new: int | None = None
        self.forgets = False
        self.methods: list[str | None] = []
        self.cancelled: list[int] = []
        self.deleted: list[str] = []
        self._handlers: set[asyncio.Task] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{self.port}/mcp"
        finally:
            server.close()
            for handler in self._handlers:
                handler.cancel()
            await asyncio.gather(*self._handlers, return_exceptions=True)
            await server.wait_closed()

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.create_task(self._converse(reader, writer))
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                message = json.loads(body) if body else {}
                await self._answer(head[0].split()[0], headers.get("mcp-session-id", ""), message, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, verb: str, session: str, message: dict, writer: asyncio.StreamWriter) -> None:
        method = message.get("method")
        self.methods.append(method)
        if verb == "DELETE":
            self.deleted.append(session)
        if verb != "POST":
            _send(writer, 405)
            return
        if self.refuse is not None:
            _send(writer, self.refuse)
            return
        if method == "server/discover":
            _send(writer, 400)
            return
        if method == "initialize" and self.refuse_new:
            _send(writer, self.refuse_new)
            return
        if method == "initialize":
            session = f"session-{len(self.sessions) + 1}"
            self.sessions.append(session)
            self.known |= set() if self.forgets else {session}
            about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            _result(writer, message, {**about, "serverInfo": {"name": "odd", "version": "1"}}, session)
            return
        if session not in self.known:
            self._refuse_unknown(writer, message)
            return
        if method == "notifications/cancelled":
            self.cancelled.append(message["params"]["requestId"])
        if "id" not in message:
            if self.deaf and method == "notifications/cancelled":
                await asyncio.Event().wait()
            _send(writer, 202)
            return
        if method == "tools/list":
            listed = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
            listed[0] |= {"title": "Addition", "annotations": {"readOnlyHint": True, "openWorldHint": False}}
            _result(writer, message, {"tools": listed})
            return
        await self._call(message, writer)

    def _refuse_unknown(self, writer: asyncio.StreamWriter, message: dict) -> None:
        if not self.unknown_session:
            _send(writer, 404)
            return
        error = {"code": -32000, "message": f"Bad Request: {self.unknown_session}"}
        body = json.dumps({"jsonrpc": "2.0", "error": error, "id": message.get("id")}).encode()
        _send(writer, 400, body, content_type="application/json")

    async def _call(self, message: dict, writer: asyncio.StreamWriter) -> None:
        name, arguments = message["params"]["name"], message["params"].get("arguments") or {}
        match name:
            case "add":
                _result(writer, message, {**_text("2"), "structuredContent": {"sum": 2}})
                return
            case "status":
                _send(writer, arguments["code"])
                return
            case "break_off":  # half an answer
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{")
                await writer.drain()
                raise ConnectionError
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        token = message["params"]["_meta"]["progressToken"]
        _event(writer, {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        await writer.drain()
        match name:
            case "drop":
                raise ConnectionError
            case "big":
                _event(writer, {"id": message["id"], "result": _text("x" * arguments["size"])})
                writer.write(b"0\r\n\r\n")
            case _:
                await asyncio.Event().wait()


def _text(words: str) -> dict:
    return {"content": [{"type": "text", "text": words}]}


def _send(writer: asyncio.StreamWriter, status: int, body: bytes = b"", **headers: str) -> None:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def _result(writer: asyncio.StreamWriter, message: dict, result: dict, session: str = "") -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
    more = {"mcp_session_id": session} if session else {}
    _send(writer, 200, body, content_type="application/json", **more)


def _event(writer: asyncio.StreamWriter, message: dict) -> None:
    data = b"event: message\r\ndata: " + json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\r\n\r\n"
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
