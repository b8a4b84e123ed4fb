"""What the holder of a session is told by those who want it, in whichever process they are."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from ...messages import UserMessage
from ..records import Lease
from ..store import SessionStore
from .prompts import QueuedPrompt

_decoder: Final = msgspec.json.Decoder(UserMessage)


class PromptReceiver(Protocol):
    """A run that can be spoken to."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    def steer_remotely(self, message: UserMessage, position: int) -> None:
        """Say this, if it is not too late; the letter at this place is answered when it is said."""
        ...

    def stop_remotely(self) -> None:
        """A newer prompt wants everything before it to stop."""
        ...


class SessionInbox:
    """Brings the letters for the holder of a lease to its run. Only for the run's own loop."""

    def __init__(self, store: SessionStore, lease: Lease, receiver: PromptReceiver) -> None:
        self._store: Final = store
        self._lease: Final = lease
        self._receiver: Final = receiver
        self._loop: Final = asyncio.get_running_loop()
        self._read: Final[set[int]] = set()
        self._taken: Final[dict[int, tuple[UserMessage, Future[bool]]]] = {}
        self._returning = False
        self._closed = False
        self._unsubscribe: Final = store.subscribe(lease.session, self._on_change)

    def close(self) -> None:
        """Nothing more is brought."""
        self._closed = True
        self._unsubscribe()

    def _on_change(self) -> None:
        """There may be a letter. From whichever thread."""
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self.fetch)

    def fetch(self) -> None:
        """Look whether there is a letter."""
        if not self._closed:
            self._store.queued_prompts(self._lease).add_done_callback(self._on_queued_prompts)

    def _on_queued_prompts(self, future: Future[list[QueuedPrompt]]) -> None:
        if future.exception() is None:  # a store that is away shows that elsewhere; those who wait ask again
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._handle_prompts, future.result())

    def _handle_prompts(self, queued_prompts: list[QueuedPrompt]) -> None:
        for prompt in queued_prompts:
            if self._closed or prompt.position in self._read:
                continue
            self._read.add(prompt.position)
            if prompt.position <= self._lease.since or prompt.is_withdrawn:
                continue  # from before, and its sender was not there when it was their turn; or they have left
            if prompt.kind == "cancel":
                self._receiver.stop_remotely()
            elif prompt.kind == "steer" and prompt.fence == self._lease.fence:
                self._take(prompt)

    def _take(self, prompt: QueuedPrompt) -> None:
        """Once the words are taken, their sender cannot take them back; so they are said once, or not at all."""
        if self._returning:
            return
        try:
            message = _decoder.decode(prompt.body)
        except (msgspec.MsgspecError, UnicodeError):
            return  # from another version, say: its sender waits for its turn

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

    def stop_taking(self, said: Collection[int]) -> bool:
        """Take nothing more. Whether something was taken that is not said."""
        self._returning = True
        return any(position not in said for position in self._taken)

    async def return_unsent(self, said: Collection[int]) -> tuple[UserMessage, ...]:
        """Give back what was taken and is not said; the words of those who have left since are the run's to tell.

        Raises a `StoreError`.
        """
        left = {position: taken for position, taken in self._taken.items() if position not in said}
        gone = await asyncio.wrap_future(self._store.return_prompts(self._lease, tuple(left)))
        # The store works in order, so it is known by now which were really taken.
        return tuple(left[position][0] for position in gone if _is_true(left[position][1]))


def _is_true(future: Future[bool]) -> bool:
    return future.done() and future.exception() is None and future.result()
