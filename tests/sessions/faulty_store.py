"""A store that loses, delays and mixes up what goes through it, on command."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Literal

from quiesce.errors import StoreError, StoreUnavailable
from quiesce.sessions.records import Lease, WriteBatch
from quiesce.sessions.store import SessionStore

Fate = Literal["lands", "fails", "lands unheard", "hangs", "lands in silence", "late", "late and failed"]
"""What becomes of a write.

lands               as it should
fails               nothing is written, and that is said
lands unheard       written, and said to have failed: the connection broke after the commit
hangs               nothing is written, and nothing is said
lands in silence    written, and nothing is said until `answer()`
late                written with `land()`, and said then
late and failed     said to have failed at once, and written all the same with `land()`
"""
FATES: tuple[Fate, ...] = ("lands", "fails", "lands unheard", "hangs", "lands in silence", "late", "late and failed")


class FaultyStore:
    """In front of another store. `fates` are those of the next writes; then `usual` is that of all."""

    def __init__(self, inner: SessionStore) -> None:
        self._inner = inner
        self.fates: list[Fate] = []
        self.usual: Fate = "lands"
        self.dead = False
        """Whether the process is gone: nothing it asks for is done any more."""
        self.improper: list[BaseException] = []
        """The exceptions other than `StoreError` with which late writes were refused."""
        self._held: list[Callable[[], None]] = []
        self._unanswered: list[Callable[[], None]] = []

    def __getattr__(self, name: str) -> Any:
        """Everything but writes: as it is."""
        method = getattr(self._inner, name)
        if not callable(method) or name == "subscribe":
            return method

        def call(*args: Any, **options: Any) -> Any:
            if self.dead:
                return Future()
            return method(*args, **options)

        return call

    def write(self, lease: Lease, batch: WriteBatch) -> Future[int]:
        if self.dead:
            return Future()
        answer: Future[int] = Future()
        fate = self.fates.pop(0) if self.fates else self.usual
        gone = StoreUnavailable("the connection broke")
        if fate == "lands":
            pass_on(self._inner.write(lease, batch), answer)
        elif fate == "lands unheard":
            self._inner.write(lease, batch).add_done_callback(lambda _: answer.set_exception(gone))
        elif fate == "lands in silence":
            written = self._inner.write(lease, batch)
            self._unanswered.append(lambda: pass_on(written, answer))
        elif fate == "late":
            self._held.append(lambda: pass_on(self._inner.write(lease, batch), answer))
        elif fate == "late and failed":
            self._held.append(lambda: self._ignore(self._inner.write(lease, batch)))
            answer.set_exception(gone)
        elif fate == "fails":
            answer.set_exception(gone)
        return answer

    def _ignore(self, done: Future[int]) -> None:
        """A late write may be refused, by then: only that it is refused properly matters."""

        def note(future: Future[int]) -> None:
            error = future.exception()
            if error is not None and not isinstance(error, StoreError):
                self.improper.append(error)

        done.add_done_callback(note)

    @property
    def has_pending(self) -> bool:
        """Whether `land()` or `answer()` would do anything."""
        return bool(self._held or self._unanswered)

    def land(self, *, backwards: bool = False) -> None:
        """What was held up is written now."""
        held, self._held = self._held, []
        for write in reversed(held) if backwards else held:
            write()

    def answer(self) -> None:
        """What was written in silence is said now."""
        unanswered, self._unanswered = self._unanswered, []
        for say in unanswered:
            say()


def pass_on(done: Future[Any], answer: Future[Any]) -> None:
    """Let one future have what another gets."""

    def tell(future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            answer.set_result(future.result())
        else:
            answer.set_exception(error)

    done.add_done_callback(tell)
