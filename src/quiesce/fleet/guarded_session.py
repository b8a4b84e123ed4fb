"""The session of a run on a worker: what is stored is checked once the lease is held, before anything is written.

A worker that was frozen before it had the lease may wake when another worker has finished its run. With the lease held
the check is safe: another worker that takes the run must first acquire a newer lease, and then this one cannot write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from ..interrupts import Answers, ArgumentCheck, PendingCall, PendingTurn
from ..messages import AssistantMessage, Message, Outcome, ToolMessage
from ..sessions import Session, SessionStore
from ..sessions.journal.buffer import WRITER
from ..sessions.queue.busy_policy import BusyPolicy
from ..sessions.records import Lease, SentElsewhere

RepeatableTool: TypeAlias = Callable[[str], bool]
"""Whether the calls of a tool, by its name, may run again."""

# A turn that was sealed in its tools: the answer, the results, and the note about the crash.
_SEALED_LENGTH: Final = 3


def repeatable_turn(messages: Sequence[Message], run_id: str, may_repeat: RepeatableTool) -> PendingTurn | None:
    """The last turn, without the results of calls that may run again; None when there are none.

    Such a call has the outcome `unknown`: whether it did its work before the worker was lost is not known.
    """
    match messages[-_SEALED_LENGTH:]:
        case (AssistantMessage() as answer, ToolMessage(results), AssistantMessage(cut=True)):
            found = {each.call_id: each for each in results}
        case _:
            return None
    again = {each.call_id for each in results if each.outcome is Outcome.UNKNOWN and may_repeat(each.name)}
    calls = tuple(PendingCall(call, None if call.id in again else found.get(call.id)) for call in answer.tool_calls)
    return PendingTurn(run_id, answer, calls) if again else None


class GuardedSession(Session):
    """A session whose lease is released again unless `check` allows the run to begin. `check` raises a `StoreError`."""

    def __init__(
        self,
        name: str,
        store: SessionStore,
        check: Callable[[GuardedSession], Awaitable[None]],
        *,
        lease: float,
        wait: float,
    ) -> None:
        super().__init__(name, store, lease=lease, wait=wait)
        self._check: Final = check
        self._repeated_by: RepeatableTool | None = None

    @property
    def last_writer(self) -> str:
        """The run that wrote to the session last, as it was when the lease was acquired."""
        return self.values.get(WRITER, b"").decode()

    async def open(self, give_up: asyncio.Future[None], busy_policy: BusyPolicy | None = None) -> Lease | SentElsewhere:
        """See `Session.open`."""
        lease = await super().open(give_up, busy_policy)
        if isinstance(lease, Lease):
            try:
                await self._check(self)
            except BaseException:
                self.stop_watching()
                self.store.release(lease)
                raise
        return lease

    async def prepare_repeat(self, may_repeat: RepeatableTool) -> bool:
        """Whether the last turn has calls of a lost worker that may run again. They do in the run that opens this next.

        That run is to be started with answers, of which there are none: it goes on with the turn.
        """
        await self.load()
        if repeatable_turn(self.messages, self.last_writer, may_repeat) is None:
            return False
        self._repeated_by = may_repeat
        return True

    def opened(self) -> None:
        """See `Session.opened`. The turn is taken out of the conversation in the same write that begins the run."""
        super().opened()
        if self._repeated_by is not None:
            turn = repeatable_turn(self.messages, self.last_writer, self._repeated_by)
            if turn is not None:
                self.suspend(turn, replacing=_SEALED_LENGTH)

    def take_pending(self, answers: Answers, check: ArgumentCheck, run_id: str) -> PendingTurn:
        """See `Conversation.take_pending`. Calls that run again wait for no answer."""
        pending = self.pending
        if self._repeated_by is None or pending is None or pending.interrupts:
            return super().take_pending(answers, check, run_id)
        taken = replace(pending, taken_by=run_id)
        self.suspend(taken)
        return taken

    async def withdraw_questions(self) -> bool:
        """Answer the calls that wait for a person as not run, and save that. False when none does."""
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lease = await self.open(never)
        assert isinstance(lease, Lease)
        try:
            if self.pending is None:
                return False
            self.drop_pending()
            await self.save(lease, {})
        finally:
            await asyncio.wrap_future(self.store.release(lease))
        return True

    async def seal(self) -> None:
        """Acquire the session of a lost worker, which seals its runs and refuses its later writes, and release it."""
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lease = await self.open(never)
        if isinstance(lease, Lease):
            await asyncio.wrap_future(self.store.release(lease))
