"""Processes that share a session in a store that fails, and readers who remember what they saw."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from quiesce import Agent, Session
from quiesce.conversation.validity import faults
from quiesce.errors import SessionBusy, SessionNotFound
from quiesce.events import AnswerEnd, AnswerStart, StoreFailed, TextDelta
from quiesce.messages import AssistantMessage
from quiesce.models.base import ModelRequest
from quiesce.result import RunResult
from quiesce.run.ending import last_event
from quiesce.run.handle import Run, wait_for
from quiesce.sessions.journal.rows import decode_messages
from quiesce.sessions.store import SessionStore
from quiesce.testing import ScriptedModel

from ..support.seen import SeenRun, check_session
from .faulty_store import Fate, FaultyStore

# More than the end of a stopped run may take, and more than that of one whose store stays away.
A_STOP = 6.0
AN_END = 65.0


class Puppet(ScriptedModel):
    """Says a word when it is told to, and ends its answer when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.words: asyncio.Queue[str | None] = asyncio.Queue()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Any]]:
        self.words = asyncio.Queue() if self.words.empty() else self.words
        yield self._say()

    async def _say(self) -> AsyncIterator[Any]:
        yield AnswerStart("puppet", "puppet")
        while (word := await self.words.get()) is not None:
            yield TextDelta(word)
        yield AnswerEnd("end_turn")


class Process:
    """One that has the session open, through a store of its own."""

    def __init__(self, inner: SessionStore, name: str, on_store_failure: Any) -> None:
        self.store = FaultyStore(inner)
        self.model = Puppet()
        session = Session(name, self.store, on_store_failure=on_store_failure)
        self.session = session
        self.agent = Agent(self.model, session=session)
        self.run: Run | None = None


class World:
    """A session, the process that uses it now and those that did, and all that readers have seen."""

    def __init__(
        self,
        inner: SessionStore,
        *,
        name: str = "s",
        on_store_failure: Any = "stop",
        used: SessionStore | None = None,
    ) -> None:
        """`used` is the store that processes use when it is not `inner`, which looks at the same place."""
        self.inner = inner
        self.used = used or inner
        self.name = name
        self._mode = on_store_failure
        self._numbers = itertools.count(1)
        self.processes = [Process(self.used, name, on_store_failure)]
        self.seen: dict[str, SeenRun] = {}
        self.stored: tuple[Any, ...] = ()
        self._revision = -1

    @property
    def now(self) -> Process:
        return self.processes[-1]

    # --- What can happen ----------------------------------------------------------------------------------------

    async def say(self, fate: Fate | None = None) -> None:
        """A word, in a new run unless one goes on; and what becomes of the write that it causes."""
        process = self.now
        number = next(self._numbers)
        if fate is not None:
            process.store.fates.append(fate)
        if process.run is None:
            process.run = process.agent.start(f"Prompt {number}.")
            self.seen[process.run.id] = seen = SeenRun(process.run.id)
            process.run.tap(seen.events.append)
        process.model.words.put_nowait(f"<word {number}>")
        await asyncio.sleep(1)
        await self._notice_end()

    async def _notice_end(self) -> None:
        process = self.now
        if process.run is not None and process.run.done:
            self._note(await wait_for(process.run))

    def _note(self, result: RunResult) -> None:
        process = self.now
        process.run, process.model.words = None, asyncio.Queue()
        seen = self.seen[result.run_id]
        seen.saved = result.receipt.saved
        if seen.saved:
            seen.answers = [
                each.text for each in result.new_messages if isinstance(each, AssistantMessage) and each.text
            ]
        elif self._mode == "stop":
            assert result.stop_reason != "end_turn", "it looks successful and is not saved"

    async def stop(self) -> None:
        if self.now.run is not None:
            self.now.run.cancel("enough")
            self._note(await asyncio.wait_for(wait_for(self.now.run), A_STOP))

    async def end(self) -> None:
        if self.now.run is not None:
            self.now.model.words.put_nowait(None)
            self._note(await asyncio.wait_for(wait_for(self.now.run), AN_END))

    async def lock(self) -> None:
        """The store takes nothing more; or does so again."""
        store = self.now.store
        store.usual = "lands" if store.usual == "fails" else "fails"
        await asyncio.sleep(1)
        await self._notice_end()

    async def wait(self) -> None:
        """Longer than anybody is patient."""
        await asyncio.sleep(15)
        await self._notice_end()

    async def land(self, *, backwards: bool = False) -> None:
        """What is still on its way arrives, from those who have crashed as well."""
        for process in self.processes:
            process.store.land(backwards=backwards)
            process.store.answer()
        await asyncio.sleep(0.5)
        await self._notice_end()

    async def crash(self) -> None:
        process = self.now
        process.store.dead = True
        if process.run is not None:
            seen = self.seen[process.run.id]
            seen.events = list(seen.events)  # what the dead process says is not heard
            process.run.cancel("gone")
            await asyncio.wait_for(process.run.stopped(), A_STOP)
        self._excuse()
        self._let_lease_expire()
        self.processes.append(Process(self.used, self.name, self._mode))

    def _excuse(self) -> None:
        for run in self.seen.values():
            run.excused |= any(isinstance(event, StoreFailed) for event in run.events)

    def _let_lease_expire(self) -> None:
        """By giving it back for its holder, who cannot."""
        from quiesce.sessions.records import Lease

        with suppress(SessionNotFound):
            info = self.inner.load(self.name).result().info
            if info.holder is not None:
                lease = Lease(info.name, info.id, info.fence, info.revision, 30.0, info.holder.owner)
                self.inner.release(lease).result()

    async def recover(self) -> None:
        """Another process, whose store does not fail, has a run in the session, if it is free."""
        answer = f"<answer {next(self._numbers)}>"
        agent = Agent(ScriptedModel(answer), session=self.name, store=self.inner)
        try:
            result = await agent.invoke_async("What was that?")
        except SessionBusy:
            assert self.now.run is not None
            return
        assert result.receipt.saved
        self.seen[result.run_id] = SeenRun(result.run_id, [last_event(result)], saved=True, answers=[answer])
        self._excuse()

    # --- What must hold -----------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Nothing that was stored is changed or gone, and whoever reads it gets a valid conversation."""
        try:
            snapshot = self.inner.load(self.name).result()
        except SessionNotFound:
            assert not self.stored
            return
        if snapshot.info.revision == self._revision:
            return
        self._revision = snapshot.info.revision
        stored = decode_messages(snapshot.messages)
        assert stored[: len(self.stored)] == self.stored, "something was overwritten"
        self.stored = stored
        session = Session(self.name, self.inner)
        assert faults(await session.load()) == ()
        assert not session.damage

    async def check(self) -> None:
        """In the end: everything has landed, everybody has let go, and the session goes on, here and elsewhere."""
        await self.land(backwards=True)
        await self.look()
        await self.stop()
        store = self.now.store
        store.fates.clear()
        store.usual = "lands"
        await self.land(backwards=True)
        await self.look()
        await self.say()
        await self.end()
        assert list(self.seen.values())[-1].saved, "the last run is saved"
        await self.recover()
        await self.look()
        await check_session(self.inner, self.name, list(self.seen.values()))
        assert [error for process in self.processes for error in process.store.improper] == []

    async def close(self) -> None:
        """Leave nothing behind."""
        for process in self.processes:
            if process.run is not None and not process.run.done:
                process.run.cancel("over")
                await process.run.stopped()
        self._let_lease_expire()
        with suppress(SessionNotFound):
            await asyncio.wrap_future(self.inner.delete(self.name))
