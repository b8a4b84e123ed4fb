"""The client: each operation of a server as a method, with the types of its answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, Literal, Self, TypeVar
from urllib.parse import quote

import httpx2
import msgspec

from ..cancellation import Mode
from ..errors import ServerProblem
from ..messages import UserContent
from ..models.wire.certificates import certificates_for
from ..receipt import Receipt
from ..server import schemas
from ..server.schemas import RunStatus, RunView
from ..server.settings import OnDisconnect
from .event_stream import ResumedStream, StreamedEvent, decoded, numbered_events

_T = TypeVar("_T")
DEFAULT_URL: Final = "http://127.0.0.1:8765"
_PATIENCE: Final = 30.0
# A silent stream has a comment every 15 seconds, unless the server is told otherwise.
_STREAM_TIMEOUT: Final = httpx2.Timeout(10.0, read=60.0)
_EVENTS: Final = "text/event-stream"


class Client:
    """One server. Use it with `async with`, or call `aclose()`.

        async with Client("http://127.0.0.1:8765", key="...") as client:
            run = await client.start_run("Count to a million.")
            async for each in client.stream_events(run.id):
                ...
            answer = await client.cancel_run(run.id, wait=10)

    `timeout` is how many seconds an answer may take, besides what a call waits for. Every failure is a `ServerProblem`:
    with its HTTP `status` when the server refused, without one when it could not be reached. Nothing is sent twice.
    """

    def __init__(self, url: str = DEFAULT_URL, key: str | None = None, *, timeout: float = 10.0) -> None:
        self.url: Final = url
        self._timeout: Final = timeout
        if key and not (key.isascii() and key.isprintable() and " " not in key):  # the HTTP library's error shows it
            message = "The API key has a line break, a space or another character that no request can send."
            raise ServerProblem(message, todo="Copy the key as it was printed, without quotes and line breaks.")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            self._http: Final = httpx2.AsyncClient(base_url=url, headers=headers, verify=certificates_for(url))
        except (ValueError, httpx2.InvalidURL) as error:
            raise ServerProblem(f"{url!r} is not the address of a server: {error}.") from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. The runs go on."""
        await self._http.aclose()

    # --- Runs ---------------------------------------------------------------------------------------------------

    async def start_run(
        self,
        prompt: str | Sequence[UserContent],
        *,
        agent: str | None = None,
        session: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the run's own, at the server
        on_disconnect: OnDisconnect | None = None,
        disconnect_grace: float | None = None,
        mode: Mode = Mode.NOW,
        on_busy: Literal["refuse", "queue"] = "refuse",
        idempotency_key: str | None = None,
    ) -> RunView:
        """Start a run. With an `idempotency_key`, a repeated call gets the same run."""
        body = schemas.StartRun(
            prompt if isinstance(prompt, str) else list(prompt), agent, session, timeout, on_disconnect,
            disconnect_grace, mode, on_busy,
        )  # fmt: skip
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return (await self._ask(schemas.RunAnswer, "POST", "/runs", body, headers=headers)).run

    async def list_runs(
        self,
        *,
        state: RunStatus | None = None,
        session: str | None = None,
        agent: str | None = None,
        since: float | None = None,
        until: float | None = None,
        search: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> tuple[RunView, ...]:
        """The runs, the newest first. `page_runs` also says where the next page begins."""
        page = await self.page_runs(
            state=state, session=session, agent=agent, since=since, until=until, search=search, before=before,
            limit=limit,
        )  # fmt: skip
        return page.runs

    async def page_runs(self, *, limit: int = 100, **query: Any) -> schemas.RunList:
        """A page of the runs: options as for `list_runs`. `next` of the page is `before` of the next one."""
        return await self._ask(schemas.RunList, "GET", "/runs", query={"limit": limit, **query})

    async def show_run(self, id: str) -> schemas.RunDetail:
        """A run, its conversation and its receipt."""
        return await self._ask(schemas.RunDetail, "GET", f"/runs/{_quoted(id)}")

    async def delete_run(self, id: str) -> None:
        """Delete an ended run."""
        await self._send("DELETE", f"/runs/{_quoted(id)}")

    async def cancel_run(
        self,
        id: str,
        reason: str = "",
        *,
        mode: Mode = Mode.NOW,
        undo: bool | None = None,
        source: Literal["user", "remote"] = "user",
        wait: float | None = None,
    ) -> schemas.CancelAnswer:
        """Stop a run; with `wait`, stay at most so many seconds until it is at rest, with its receipt."""
        body = schemas.CancelRun(reason, mode, undo, source)
        return await self._ask(schemas.CancelAnswer, "POST", f"/runs/{_quoted(id)}/cancel", body, wait=wait)

    async def steer_run(self, id: str, text: str) -> bool:
        """Steer a running run with a prompt. Whether it was accepted."""
        body = schemas.SteerRun(text)
        return (await self._ask(schemas.Accepted, "POST", f"/runs/{_quoted(id)}/steer", body)).accepted

    async def pause_run(self, id: str, *, paused: bool = True) -> bool:
        """Let a run wait before its next step, or go on with `paused=False`. Whether this changed anything."""
        body = schemas.PauseRun(paused)
        return (await self._ask(schemas.Accepted, "POST", f"/runs/{_quoted(id)}/pause", body)).accepted

    async def resume_run(
        self, id: str, answers: Mapping[str, Any], *, remember: Mapping[str, schemas.Remember] | None = None
    ) -> RunView:
        """Answer questions of a run, by the ids of its `interrupts`. Returns the run that goes on with them.

        An approval that is in `remember` counts for later calls too.
        """
        kept = remember or {}
        body = schemas.ResumeRun([schemas.Answer(name, answer, kept.get(name)) for name, answer in answers.items()])
        return (await self._ask(schemas.RunAnswer, "POST", f"/runs/{_quoted(id)}/resume", body)).run

    async def continue_run(self, id: str) -> RunView:
        """Continue the answer of a stopped run, in a new run."""
        return (await self._ask(schemas.RunAnswer, "POST", f"/runs/{_quoted(id)}/continue", schemas.Nothing())).run

    async def undo_run(self, id: str, *, wait: float | None = None) -> tuple[Receipt, bool]:
        """Undo the calls of tools that have an undo. The receipt, and whether everything was tried in that time."""
        answer = await self._ask(
            schemas.ReceiptAnswer, "POST", f"/runs/{_quoted(id)}/undo", schemas.Nothing(), wait=wait
        )
        return answer.receipt, answer.is_done

    async def cancel_tool(self, id: str, call: str, reason: str = "") -> bool:
        """Stop one tool call; the run goes on. Whether this changed anything."""
        body = schemas.CancelTool(reason)
        return (
            await self._ask(schemas.Accepted, "POST", f"/runs/{_quoted(id)}/tools/{_quoted(call)}/cancel", body)
        ).accepted

    # --- Streams ------------------------------------------------------------------------------------------------

    def stream_events(self, id: str, *, after: int = 0, patience: float = _PATIENCE) -> AsyncGenerator[StreamedEvent]:
        """The events of a run, past and future, to its end, each once and in order.

        A connection that breaks is made again, from the event after the last; `patience` is how long that is tried.
        Whether a run without a reader is stopped is its own setting (`on_disconnect`).
        """
        return numbered_events(lambda place: self._stream(f"/runs/{_quoted(id)}/events", place), after, patience)

    async def stream_changes(
        self, *, after: str = "", patience: float = _PATIENCE
    ) -> AsyncGenerator[schemas.RunsChange]:
        """The changes in the list of runs, for ever. The first is the whole list."""
        decoder: msgspec.json.Decoder[schemas.RunsChange] = msgspec.json.Decoder(schemas.RunsChange)
        stream = ResumedStream(lambda place: self._stream("/events", place), after, patience)
        async with aclosing(stream.frames()) as frames:
            async for frame in frames:
                change = decoded(decoder, frame)
                if change is not None:
                    yield change

    # --- Sessions and the server --------------------------------------------------------------------------------

    async def list_sessions(self) -> tuple[schemas.SessionView, ...]:
        """The sessions, the latest first."""
        return (await self._ask(schemas.SessionList, "GET", "/sessions")).sessions

    async def show_session(self, name: str) -> schemas.SessionDetail:
        """A session, its conversation and its runs."""
        return await self._ask(schemas.SessionDetail, "GET", f"/sessions/{_quoted(name)}")

    async def delete_session(self, name: str) -> None:
        """Delete a session."""
        await self._send("DELETE", f"/sessions/{_quoted(name)}")

    # --- Approvals in advance, and the rest ---------------------------------------------------------------------

    async def list_approvals(self) -> tuple[schemas.StandingApproval, ...]:
        """The approvals that were given in advance, the newest first."""
        return (await self._ask(schemas.ApprovalList, "GET", "/approvals")).approvals

    async def delete_approval(self, approval: str) -> None:
        """Take back an approval that was given in advance."""
        await self._send("DELETE", f"/approvals/{_quoted(approval)}")

    async def show_audit(
        self,
        *,
        before: int | None = None,
        limit: int = 100,
        action: schemas.AuditAction | None = None,
        run: str | None = None,
    ) -> schemas.AuditPage:
        """What was done with this key, the newest first. `before` is `next` of the page before."""
        query = {"before": before, "limit": limit, "action": action, "run": run}
        return await self._ask(schemas.AuditPage, "GET", "/audit", query=query)

    async def show_usage(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        agent: str | None = None,
        session: str | None = None,
    ) -> schemas.UsageReport:
        """The usage, in all, by day, model and agent, and by session. `since` and `until` are days: "2026-11-16"."""
        query = {"since": since, "until": until, "agent": agent, "session": session}
        return await self._ask(schemas.UsageReport, "GET", "/usage", query=query)

    async def show_usage_by_key(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        agent: str | None = None,
        key: str | None = None,
    ) -> schemas.UsageByKey:
        """The usage of all keys, or of one. Raises `ServerProblem` (403) for a key that is no operator's."""
        query = {"since": since, "until": until, "agent": agent, "key": key}
        return await self._ask(schemas.UsageByKey, "GET", "/usage/keys", query=query)

    async def list_agents(self) -> tuple[schemas.AgentView, ...]:
        """The agents that the server has."""
        return (await self._ask(schemas.AgentList, "GET", "/agents")).agents

    async def show_fleet(self) -> schemas.FleetView:
        """The workers, the queue and the freezes of the server's fleet. Raises `ServerProblem` (404) without one."""
        return await self._ask(schemas.FleetView, "GET", "/fleet")

    async def health(self) -> schemas.Health:
        """Whether the server accepts new runs. Raises `ServerProblem` (503) when it is shutting down."""
        return await self._ask(schemas.Health, "GET", "/healthz")

    # --- Requests -----------------------------------------------------------------------------------------------

    async def _ask(
        self,
        answer: type[_T],
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        wait: float | None = None,
    ) -> _T:
        asked = {"wait": wait} if wait is not None else query or {}
        seconds = self._timeout + (wait or 0.0)
        sent = await self._send(method, path, body, query=asked, headers=headers, seconds=seconds)
        try:
            return msgspec.json.decode(sent.content, type=answer)
        except msgspec.MsgspecError as error:
            raise _stranger(self.url, sent.status_code) from error

    async def _send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> httpx2.Response:
        params = {name: value for name, value in (query or {}).items() if value is not None}
        kind = {"Content-Type": "application/json"} if body is not None else {}
        try:
            content = None if body is None else msgspec.json.encode(body)
            response = await self._http.request(
                method, path, params=params, content=content, headers={**(headers or {}), **kind},
                timeout=self._timeout if seconds is None else seconds,
            )  # fmt: skip
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _no_answer(self.url, error) from error
        except UnicodeEncodeError as error:
            raise ServerProblem("The request has a character that cannot be sent.") from error
        if not response.is_success:
            raise _refusal(response, self.url)
        return response

    @asynccontextmanager
    async def _stream(self, path: str, after: str) -> AsyncGenerator[httpx2.Response]:
        query = {"after": after} if after not in ("", "0") else {}
        try:
            async with self._http.stream("GET", path, params=query, timeout=_STREAM_TIMEOUT) as response:
                if not response.is_success:
                    await response.aread()
                    raise _refusal(response, self.url)
                if not response.headers.get("content-type", _EVENTS).startswith(_EVENTS):
                    raise _stranger(self.url, response.status_code)
                yield response
        except httpx2.HTTPError as error:
            raise _no_answer(self.url, error) from error


def _quoted(part: str) -> str:
    return quote(part, safe="", errors="surrogateescape")


class _Problem(msgspec.Struct):
    message: str
    todo: str
    code: str = ""


class _Refused(msgspec.Struct):
    error: _Problem


def _refusal(response: httpx2.Response, url: str) -> ServerProblem:
    try:
        said = msgspec.json.decode(response.content, type=_Refused).error
    except msgspec.MsgspecError:
        return _stranger(url, response.status_code)
    problem = ServerProblem(said.message, todo=said.todo)
    problem.status, problem.code = response.status_code, said.code
    return problem


def _stranger(url: str, status: int) -> ServerProblem:
    problem = ServerProblem(f"{url} answered HTTP {status}, but not like a Quiesce server.")
    problem.status = status
    return problem


def _no_answer(url: str, error: Exception) -> ServerProblem:
    return ServerProblem(
        f"No answer from {url}: {error or type(error).__name__}.",
        todo="Check that `quiesce serve` runs there. The commands take another address from --url or QUIESCE_URL.",
    )
