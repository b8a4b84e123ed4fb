"""A token to look at.

Nothing is imported here that a tool's worker process would not need: what it holds, all that it forks holds too, and
the kernel takes longer to end them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from .cause import Cause, Mode
    from .token import CancellationToken, Unregister


class _Watched(Protocol):
    """What can be looked at: a token, or a worker process's connection to one. `TokenView` documents each name."""

    @property
    def cancelled(self) -> bool: ...
    @property
    def cause(self) -> Cause | None: ...
    @property
    def mode(self) -> Mode | None: ...
    def raise_if_cancelled(self) -> None: ...
    async def wait(self) -> Cause: ...
    def wait_sync(self, timeout: float | None = None) -> bool: ...
    def on_cancel(self, callback: Callable[[Cause], object]) -> Unregister: ...
    def child(self) -> CancellationToken: ...


class TokenView:
    """A token to look at and wait for, not to cancel: what tools and hooks are given."""

    __slots__ = ("_token",)

    def __init__(self, token: _Watched) -> None:
        self._token: Final = token

    @property
    def cancelled(self) -> bool:
        """Whether a stop was asked for, in whatever mode."""
        return self._token.cancelled

    @property
    def cause(self) -> Cause | None:
        """The first cause, or None."""
        return self._token.cause

    @property
    def mode(self) -> Mode | None:
        """The most urgent mode asked for, or None."""
        return self._token.mode

    def raise_if_cancelled(self) -> None:
        """Raises `Cancelled` once a stop was asked for."""
        self._token.raise_if_cancelled()

    async def wait(self) -> Cause:
        """Wait until a stop is asked for; returns the first cause."""
        return await self._token.wait()

    def wait_sync(self, timeout: float | None = None) -> bool:
        """Block this thread until a stop is asked for, or for `timeout` seconds. Whether it was."""
        return self._token.wait_sync(timeout)

    def on_cancel(self, callback: Callable[[Cause], object]) -> Unregister:
        """Call `callback(cause)` once when a stop is asked for. See `CancellationToken.on_cancel`."""
        return self._token.on_cancel(callback)

    def child(self) -> CancellationToken:
        """A token that is cancelled with this one, and can be cancelled alone."""
        return self._token.child()

    def __repr__(self) -> str:
        return f"<view of {self._token!r}>"
