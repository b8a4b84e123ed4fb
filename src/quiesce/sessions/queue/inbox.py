"""The inbox of a run that holds a session: prompts that other processes have queued for it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from ...errors import LeaseLost
from ...messages import UserMessage
from ..records import Lease
from ..store import SessionStore
from .prompts import QueuedPrompt

# Seconds until the queue is read again after the store has failed.
_TRY_AGAIN: Final = 1.0
_decoder: Final = msgspec.json.Decoder(UserMessage)


class PromptReceiver(Protocol):
    """A run that receives prompts from other processes."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    def steer_remotely(self, message: UserMessage, position: int) -> None:
        """Send this message to the model, unless it is too late; then mark the queued prompt at `position` as sent."""
        ...

    def stop_remotely(self) -> None:
        """Stop, because a newer prompt has `on_busy="cancel_previous"`."""
        ...


class SessionInbox:
    """Hands queued prompts to the run that holds the lease. Only for the run's own loop."""

    def __init__(self, store: SessionStore, lease: Lease, receiver: PromptReceiver) -> None:
        self._store: Final = store
        self._lease: Final = lease
        self._receiver: Final = receiver
        self._loop: Final = asyncio.get_running_loop()
        self._read: Final[set[int]] = set()
        self._taken: Final[dict[int, tuple[UserMessage, Future[bool]]]] = {}
        self._returning = False
        self._closed = False
        self._unsubscribe = store.subscribe(lease.session, self._on_change)

    def close(self) -> None:
        """Hand over no more prompts."""
        self._closed = True
        self._unsubscribe()
        self._unsubscribe = lambda: None

    def _on_change(self) -> None:
        """The queue may have changed. From any thread."""
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self.fetch)

    def fetch(self) -> None:
        """Read the queue."""
        if not self._closed:
            self._store.queued_prompts(self._lease).add_done_callback(self._on_queued_prompts)

    def _on_queued_prompts(self, future: Future[list[QueuedPrompt]]) -> None:
        error = future.exception()
        with suppress(RuntimeError):  # the loop has closed
            if error is None:
                self._loop.call_soon_threadsafe(self._handle_prompts, future.result())
            elif not isinstance(error, LeaseLost):  # which is noticed by the next write
                self._loop.call_soon_threadsafe(self._loop.call_later, _TRY_AGAIN, self.fetch)

    def _handle_prompts(self, queued_prompts: list[QueuedPrompt]) -> None:
        for prompt in queued_prompts:
            if self._closed or prompt.position in self._read:
                continue
            self._read.add(prompt.position)
            if prompt.position <= self._lease.since or prompt.is_withdrawn:
                continue  # queued before this lease, so its process did not answer in time; or withdrawn
            if prompt.kind == "cancel":
                self._receiver.stop_remotely()
            elif prompt.kind == "steer" and prompt.fence == self._lease.fence:
                self._take(prompt)

    def _take(self, prompt: QueuedPrompt) -> None:
        """Take a prompt. From then on its process cannot withdraw it, so that it is sent at most once."""
        if self._returning:
            return
        try:
            message = _decoder.decode(prompt.body)
        except (msgspec.MsgspecError, UnicodeError):
            return  # from another version, perhaps: the prompt stays in the queue

        def on_taken(future: Future[bool]) -> None:
            if future.exception() is None and future.result():
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._accept, prompt.position, message)

        taking = self._store.take_prompt(self._lease, prompt.position, self._receiver.run_id)
        self._taken[prompt.position] = (message, taking)
        taking.add_done_callback(on_taken)

    def _accept(self, position: int, message: UserMessage) -> None:
        if not self._returning:
            self._receiver.steer_remotely(message, position)

    def stop_taking(self, sent: Collection[int]) -> bool:
        """Take no more prompts. Returns whether a prompt was taken that is not among those `sent`."""
        self._returning = True
        return any(position not in sent for position in self._taken)

    async def return_unsent(self, sent: Collection[int]) -> tuple[UserMessage, ...]:
        """Put prompts back into the queue that were taken and not sent. Raises a `StoreError`.

        Returns the messages whose process has left the queue meanwhile: only this run can still report them.
        """
        left = {position: taken for position, taken in self._taken.items() if position not in sent}
        gone = await asyncio.wrap_future(self._store.return_prompts(self._lease, tuple(left)))
        # The store works in order, so the requests to take prompts have been answered by now.
        return tuple(left[position][0] for position in gone if _is_true(left[position][1]))


def _is_true(future: Future[bool]) -> bool:
    return future.done() and future.exception() is None and future.result()
