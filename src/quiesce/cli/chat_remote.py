"""A chat with an agent of a server, through its client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Final

from .. import events
from ..cancellation import CancellationToken, Mode
from ..client import Client
from ..client.event_stream import EventGap
from ..errors import ConfigurationError, ServerProblem
from ..interrupts import Answers, Interrupt
from ..messages import Message, Text, UserMessage
from ..phases import Phase
from ..receipt import LateOutcome
from ..server.schemas import RunView, SessionView, UsageView
from ..tools.policy import ToolStopPolicy
from .chat_backend import ChatPrompt, ChatRun, UndoSummary
from .chat_sessions import last_lines
from .run_answers import sent_answer
from .sanitize import date_text

_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
# Seconds that one request of an undo waits; then it asks again.
_UNDO_WAIT: Final = 10.0
_PHASES: Final[dict[type, Phase]] = {
    events.ModelCallStarted: Phase.CALLING,
    events.TextDelta: Phase.STREAMING,
    events.ReasoningDelta: Phase.STREAMING,
    events.RetryScheduled: Phase.BACKING_OFF,
    events.ToolStarted: Phase.ACTING,
    events.RunEnded: Phase.ENDED,
}


class RemoteRun:
    """A run of a server. In a fleet, the runs that go on with it are followed too."""

    def __init__(
        self, client: Client, view: RunView, on_problem: Callable[[str], None], on_stop_failed: Callable[[], None]
    ) -> None:
        self._client: Final = client
        self._on_problem: Final = on_problem
        self._on_stop_failed: Final = on_stop_failed
        self._requests: Final[set[asyncio.Task[None]]] = set()
        self._ended: Final = asyncio.Event()
        self.view = view
        self.phase = view.phase

    @property
    def id(self) -> str:
        """The run's id; that of the run that goes on with it, once there is one."""
        return self.view.id

    @property
    def usage(self) -> str:
        """What it had used when the server was asked last."""
        return usage_line(self.view.usage)

    async def events(self) -> AsyncGenerator[events.Event]:
        """The events from the first to the last. Raises `ServerProblem` when the server is away for too long."""
        try:
            while True:
                async with aclosing(self._client.stream_events(self.id)) as stream:
                    async for each in stream:
                        if isinstance(each.event, EventGap):
                            self._on_problem(f"The events {each.event.first} to {each.event.last} are no longer kept.")
                            continue
                        self.phase = _PHASES.get(type(each.event), self.phase)
                        yield each.event
                self.view = (await self._client.show_run(self.id)).run
                if not self.view.restarted_as:
                    return
                self.view = (await self._client.show_run(self.view.restarted_as)).run
        finally:
            self._ended.set()

    def cancel(self, reason: str, mode: Mode) -> None:
        """Request a stop. When the request fails, the user is told, and may try again."""
        self._send(self._cancel(reason, mode), "The stop has not reached the server")

    async def _cancel(self, reason: str, mode: Mode) -> None:
        try:
            await self._client.cancel_run(self.id, reason, mode=mode)
        except ServerProblem:
            self._on_stop_failed()
            raise

    def cancel_tool(self, call_id: str, reason: str) -> None:
        """Stop one tool call."""
        request = self._client.cancel_tool(self.id, call_id, reason)
        self._send(request, "The stop of the tool has not reached the server")

    def _send(self, request: Coroutine[Any, Any, object], failure: str) -> None:
        async def send() -> None:
            try:
                await request
            except ServerProblem as error:
                self._on_problem(f"{failure}: {error}")

        task = asyncio.create_task(send())
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def steer(self, prompt: ChatPrompt) -> bool:
        """Steer the run with the text of the prompt; False when it is too late, and for images and documents."""
        if not all(isinstance(part, Text) for part in prompt.content):
            return False
        try:
            return await self._client.steer_run(
                self.id, "\n".join(p.text for p in prompt.content if isinstance(p, Text))
            )
        except ServerProblem as error:
            if error.status != _CONFLICT:
                self._on_problem(str(error))
            return False

    async def rest(self) -> tuple[UserMessage, ...]:
        """Wait until its events have ended, or the server is away for too long."""
        await self._ended.wait()
        if self._requests:
            await asyncio.wait(self._requests)
        return ()


class RemoteBackend:
    """An agent of a server, with the sessions that the server has for this key."""

    def __init__(self, client: Client, agent: str | None = None, session: str | None = None) -> None:
        self._client: Final = client
        self._agent = agent or ""
        self._model = ""
        self._session = session or time.strftime("chat-%Y-%m-%d-%H%M%S")
        self._policies: Final[dict[str, ToolStopPolicy]] = {}
        self._messages: tuple[Message, ...] = ()
        self._run: RemoteRun | None = None
        self.on_late_outcome: Callable[[LateOutcome], None] = lambda _: None
        self.on_problem: Callable[[str], None] = lambda _: None
        self.on_stop_failed: Callable[[], None] = lambda: None

    @property
    def title(self) -> tuple[str, str]:
        """The name of the agent, and the name of its model with the address of the server."""
        return self._agent, f"{self._model}  ·  {self._client.url}"

    @property
    def session(self) -> str:
        """The name of the session."""
        return self._session

    @property
    def is_saved(self) -> bool:
        """The server keeps the conversation."""
        return True

    @property
    def pending(self) -> tuple[Interrupt, ...]:
        """What the last run of the session asks."""
        return () if self._run is None else self._run.view.interrupts

    def policy(self, tool: str) -> ToolStopPolicy | None:
        """The stop policy of a tool, as the server describes it."""
        return self._policies.get(tool)

    async def begin(self) -> ChatRun | None:
        """Read the agent and the session; returns the run that is going on in it. Raises `ServerProblem`."""
        chosen = next(each for each in await self._client.list_agents() if self._agent in ("", each.name))
        self._agent, self._model = chosen.name, chosen.model
        for tool in chosen.tools:
            self._policies[tool.name] = ToolStopPolicy(tool.on_stop, tool.grace)  # pyright: ignore[reportArgumentType]
        await self.switch(self._session)
        is_active = self._run is not None and self._run.view.state not in ("ended", "crashed")
        return self._run if is_active else None

    async def start(self, prompt: ChatPrompt) -> ChatRun:
        """Start a run with a prompt. Raises `ServerProblem`."""
        content = prompt.content
        sent = content[0].text if len(content) == 1 and isinstance(content[0], Text) else content
        return self._follow(await self._client.start_run(sent, agent=self._agent, session=self._session))

    async def answer(self, answers: Answers) -> ChatRun:
        """Answer what the last run asks. Raises `ServerProblem`."""
        assert self._run is not None
        return self._follow(
            await self._client.resume_run(self._run.id, {name: sent_answer(each) for name, each in answers.items()})
        )

    def _follow(self, view: RunView) -> RemoteRun:
        self._run = RemoteRun(self._client, view, self.on_problem, self.on_stop_failed)
        return self._run

    async def undo(self, token: CancellationToken) -> UndoSummary | None:
        """Undo the tools of the last prompt at the server. The token ends the wait for it, not the undo."""
        if self._run is None:
            return None
        while True:
            undoing = asyncio.ensure_future(self._client.undo_run(self._run.id, wait=_UNDO_WAIT))
            stopped = asyncio.ensure_future(token.wait())
            try:
                await asyncio.wait((undoing, stopped), return_when=asyncio.FIRST_COMPLETED)
                if not undoing.done():
                    return UndoSummary((), (), 0)
                receipt, is_done = undoing.result()
            finally:
                for task in (undoing, stopped):
                    task.cancel()
                await asyncio.gather(undoing, stopped, return_exceptions=True)
            if is_done:
                return UndoSummary(tuple(receipt.undo), (), 0)

    async def usage(self) -> str:
        """What all runs of this key have used."""
        return f"all runs of this key: {usage_line((await self._client.show_usage()).total)}"

    async def switch(self, name: str) -> bool:
        """Go to another session of the server; True when it is new. Raises `ServerProblem`."""
        try:
            found = await self._client.show_session(name)
        except ServerProblem as error:
            if error.status != _NOT_FOUND:
                raise
            self._session, self._messages, self._run = name, (), None
            return True
        self._session, self._messages, self._run = name, found.messages, None
        if found.runs:
            self._follow(max(found.runs, key=lambda run: run.created_at))
        return False

    async def session_lines(self) -> list[str]:
        """One line for each session of this key."""
        listed = await self._client.list_sessions()
        lines = [_session_line(each, is_current=each.name == self._session) for each in listed]
        is_listed = any(each.name == self._session for each in listed)
        return lines if is_listed else [f"* {self._session}  0 messages", *lines]

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def last_messages(self) -> str:
        """The last prompt and answer of the session, as it was when it was opened."""
        return last_lines(self._messages)


async def check_server(client: Client, agent: str | None, session: str | None, resume: str | None) -> str | None:
    """The session to go on with; `resume` names one that must exist, or is empty for the one that was used last.

    Raises `ServerProblem`, and `ConfigurationError` for an agent or a session that the server does not have.
    """
    agents = [each.name for each in await client.list_agents()]
    if agent is not None and agent not in agents:
        raise ConfigurationError(f"The server has no agent {agent!r}.", todo=f"It has: {', '.join(agents)}.")
    if resume is None:
        return session
    known = {each.name: each.updated_at for each in await client.list_sessions()}
    if resume and resume not in known:
        raise ConfigurationError(f"The server has no session {resume!r}.", todo="Use --session to start it.")
    if not known:
        raise ConfigurationError("The server has no session yet.", todo="Leave out --resume.")
    return resume or max(known, key=lambda each: known[each])


def usage_line(used: UsageView) -> str:
    """Tokens and cost on one line."""
    cost = f", {used.cost}" if used.cost is not None else ""
    return f"{used.input} in, {used.output} out{cost} ({used.calls} model call{'' if used.calls == 1 else 's'})"


def _session_line(each: SessionView, *, is_current: bool) -> str:
    running = "  running" if each.run else ""
    return f"{'*' if is_current else ' '} {each.name}  {each.messages} messages  {date_text(each.updated_at)}{running}"
