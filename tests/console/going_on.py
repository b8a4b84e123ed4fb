"""The parts of the HTTP contract about going on (steer, resume, continue), around the real application.

They come with the core's interrupts. Until the server has them, the console is tried against these: the runs, their
events and everything else are the server's own.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec
from msgspec import Struct, structs
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quiesce.events import Event, MessageAdded, RunEnded
from quiesce.messages import Text, UserMessage
from quiesce.server.app import Application
from quiesce.server.eventlog import EventLog
from quiesce.server.gate import ANONYMOUS
from quiesce.server.record import RunRecord
from quiesce.server.views import RunAnswer, RunView, StartRun

_PATH: Final = re.compile(r"/runs/(?P<id>[^/]+)/(?P<verb>steer|resume|continue)")


class Steered(Struct, frozen=True, tag="steered"):
    message: UserMessage


class InterruptRaised(Struct, frozen=True, tag="interrupt_raised"):
    interrupt: dict[str, Any]


class GoingOn:
    """The application, with these routes in front of it. `told` is what it was asked, by route."""

    def __init__(self, app: Application) -> None:
        self.app: Final = app
        admit = app.desk.admit

        def admit_and_ask(run: Any, owner: str, agent: Any, wanted: StartRun, *, session: str | None) -> RunRecord:
            record = admit(run, owner, agent, wanted, session=session)
            names = {"deploy": ["deploy"], "ask": ["deploy", "announce"]}.get(str(wanted.prompt).split()[0], [])
            if names:
                _let_it_ask(record, names)
            return record

        app.desk.admit = admit_and_ask  # type: ignore[method-assign]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = _PATH.fullmatch(scope.get("path", ""))
        if asked is None or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        body = json.loads(await Request(scope, receive).body() or b"{}")
        record = self.app.desk.get(ANONYMOUS, asked["id"])
        await self._answer(record, asked["verb"], body)(scope, receive, send)

    def _answer(self, record: RunRecord, verb: str, body: dict[str, Any]) -> Response:
        match verb:
            case "steer":
                message = UserMessage((Text(body["text"]),))
                record.log.append(Steered(message))  # type: ignore[arg-type]
                record.log.append(MessageAdded(message))
                return Response(b'{"accepted":true}', 202, media_type="application/json")
            case "continue":
                return self._start(record, "hello, go on")
            case _:
                return self._start(record, f"hello, the answers are {json.dumps(body['answers'], sort_keys=True)}")

    def _start(self, record: RunRecord, prompt: str) -> Response:
        wanted = StartRun(prompt, session=record.session)
        started, _ = self.app.desk.start(record.owner, wanted, None)
        return _json(RunAnswer(started.view()), 201)


def _json(value: Any, status: int) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _let_it_ask(record: RunRecord, names: list[str]) -> None:
    """Make a run end with questions to a person."""
    interrupts = tuple(
        {
            "id": f"{record.id}/{name}",
            "name": "approval",
            "kind": "approval",
            "call_id": name,
            "tool_name": name,
            "arguments": {"environment": "production", "version": "1.4.2"},
            "reason": None,
            "asked_at": 0.0,
            "expires_at": None,
        }
        for name in names
    )
    record.log = _Asking(record.log, interrupts)  # type: ignore[misc]
    view = record.view

    def asking_view() -> RunView:
        plain = view()
        return (
            plain if plain.state != "ended" else structs.replace(plain, stop_reason="interrupt", interrupts=interrupts)
        )

    record.view = asking_view  # type: ignore[method-assign]


class _Asking:
    """An event log in which the run ends because it waits for a person."""

    def __init__(self, log: EventLog, interrupts: tuple[dict[str, Any], ...]) -> None:
        self._log: Final = log
        self._interrupts: Final = interrupts

    def append(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            for interrupt in self._interrupts:
                self._log.append(InterruptRaised(interrupt))  # type: ignore[arg-type]
            receipt = structs.replace(event.receipt, stop_reason="interrupt")
            event = structs.replace(event, stop_reason="interrupt", receipt=receipt)
        self._log.append(event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)
