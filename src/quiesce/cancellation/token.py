"""A one-way latch that any thread can close.

The token takes no lock, because `cancel()` must work in a signal handler, in a garbage-collection callback, and inside
one of its own callbacks, where a lock could already be held by the very thread that asks. Every step below is one
atomic operation on a built-in container, and the steps are ordered so that a reader between any two of them sees a
legal token: the tests run every interleaving of them.
"""

from __future__ import annotations

import functools
import itertools
import logging
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from .._threads.seconds import is_seconds, lock_timeout
from ..errors import Cancelled, ConfigurationError, UnknownMode
from .cause import MOST_URGENT_FIRST, Cause, Mode, ModeName, Source, parse_mode

_log: Final = logging.getLogger("quiesce")
_keys: Final = itertools.count()

_T = TypeVar("_T")
Unregister = Callable[[], None]


class CancellationToken:
    """A thread-safe one-way latch with a `Cause`. The first cause wins; later calls can only make it more urgent."""

    __slots__ = (
        "__weakref__",
        "_children",
        "_first",
        "_modes",
        "_once",
        "_parents",
        "_watchers",
        "stop_asked",
        "stop_now",
    )

    def __init__(self) -> None:
        self._first: Final[dict[str, Cause]] = {}
        self._modes: Final[dict[Mode, Cause]] = {}
        self._watchers: Final[dict[int, Callable[[Mode], None]]] = {}
        self._once: Final[dict[int, _Callback]] = {}
        self._children: Final[dict[int, weakref.ref[CancellationToken]]] = {}
        self._parents: tuple[CancellationToken, ...] = ()
        self.stop_asked: bool = False
        """True once a stop was asked for. A plain attribute, because it is read in each phase of each run."""
        self.stop_now: bool = False
        """True once the mode is `now` or `kill`. A plain attribute, because it is read for every streamed chunk."""

    # --- Asking ---------------------------------------------------------------------------------------------------

    def cancel(self, reason: str = "", *, mode: ModeName | Mode = Mode.NOW, source: Source = "user") -> bool:
        """Ask for a stop. Returns at once; whether this call changed anything is the result.

        From any thread, task, signal handler or callback, at any time and any number of times. Raises nothing, except
        `UnknownMode` for a mode that does not exist, and then the stop is made all the same, in mode `now`.
        """
        try:
            return self._spread(Cause(source, reason, parse_mode(mode)))
        except UnknownMode:
            self._spread(Cause(source, reason, Mode.NOW))
            raise
        except KeyboardInterrupt:  # in the middle: some watchers may not know of the stop
            self._spread_again(Cause(source, reason, parse_mode(mode)))
            raise

    def _spread_again(self, cause: Cause) -> None:
        """Do all that `_spread` does, whatever of it was done before: watchers may be called twice."""
        waiting: list[tuple[CancellationToken, Cause]] = [(self, cause)]
        while waiting:
            token, cause = waiting.pop()
            first = token._first.setdefault("cause", cause)
            token._modes.setdefault(cause.mode, cause)
            token.stop_asked = True
            token.stop_now = token.stop_now or cause.mode >= Mode.NOW
            token._notify(token.mode or cause.mode)
            waiting.extend((child, first.from_parent(cause.mode)) for child in token._living_children())

    def _spread(self, cause: Cause) -> bool:
        """Latch this token and all below it, then call their watchers. A loop, not recursion: trees may be deep."""
        changed = self._latch(cause)
        if not changed:
            return False
        latched: list[CancellationToken] = [self]
        waiting: list[CancellationToken] = [self]
        while waiting:
            token = waiting.pop()
            children = token._living_children()
            if children:
                # What is passed on is the first cause, also by a call that only made it more urgent: a child that has
                # not got the first one yet, or never will, names the same origin as its parent.
                inherited = token._first["cause"].from_parent(cause.mode)
                below = [child for child in children if child._latch(inherited)]
                latched += below
                waiting += below
        interrupts = [interrupt for token in latched for interrupt in token._notify(cause.mode)]
        if interrupts:
            raise interrupts[0]
        return True

    def _latch(self, cause: Cause) -> bool:
        """Record a request. Whether it is the first one, or more urgent than all before it."""
        strongest = self.mode if self._first else None
        if strongest is None or cause.mode > strongest:
            self._first.setdefault("cause", cause)
            mine = self._modes.setdefault(cause.mode, cause) is cause
            self.stop_asked = True
            if cause.mode >= Mode.NOW:
                self.stop_now = True
            return mine
        return False

    def _living_children(self) -> list[CancellationToken]:
        if not self._children:
            return []
        return [child for ref in self._children.copy().values() if (child := ref()) is not None]

    def _notify(self, mode: Mode) -> list[KeyboardInterrupt]:
        """Call the watchers and callbacks. Returns each Ctrl-C that came meanwhile, to be raised after them."""
        cause = self._first["cause"]
        raised = [_guarded(watcher, mode) for watcher in self._watchers.copy().values()] if self._watchers else []
        if self._once:
            raised += [callback.fire(cause) for callback in self._once.copy().values()]
        return [interrupt for interrupt in raised if interrupt is not None]

    # --- Looking --------------------------------------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """Whether a stop was asked for, in whatever mode."""
        return "cause" in self._first

    @property
    def cause(self) -> Cause | None:
        """The first cause, or None."""
        return self._first.get("cause")

    @property
    def mode(self) -> Mode | None:
        """The most urgent mode asked for, or None."""
        for mode in MOST_URGENT_FIRST:
            if mode in self._modes:
                return mode
        first = self._first.get("cause")
        return None if first is None else first.mode

    def wants(self, mode: Mode) -> bool:
        """Whether a stop at least as urgent as `mode` was asked for."""
        strongest = self.mode
        return strongest is not None and strongest >= mode

    def raise_if_cancelled(self) -> None:
        """Raises `Cancelled` once a stop was asked for."""
        cause = self.cause
        if cause is not None:
            raise Cancelled(cause)

    # --- Waiting --------------------------------------------------------------------------------------------------

    async def wait(self) -> Cause:
        """Wait until a stop is asked for; returns the first cause. Any number of tasks on any number of loops."""
        import asyncio  # here, because the workers of killable tools do without

        loop = asyncio.get_running_loop()
        asked = asyncio.Event()

        def wake(_: Cause) -> None:
            with suppress(RuntimeError):  # that loop has closed, and with it the task that waited
                loop.call_soon_threadsafe(asked.set)

        unregister = self.on_cancel(wake)
        try:
            await asked.wait()
        finally:
            unregister()
        return self._first["cause"]

    def wait_sync(self, timeout: float | None = None) -> bool:
        """Block this thread until a stop is asked for, or for `timeout` seconds. Whether it was."""
        # A plain lock, and not an Event: a signal handler may cancel in the middle of this very method, and would wait
        # for ever for the lock inside the Event, which its own thread holds.
        asked = threading.Lock()
        asked.acquire()
        unregister = self.on_cancel(lambda _: asked.release())
        try:
            return asked.acquire(timeout=lock_timeout(timeout))
        finally:
            unregister()

    def on_cancel(self, callback: Callable[[Cause], object]) -> Unregister:
        """Call `callback(cause)` once when a stop is asked for, at once if it already was; again if a Ctrl-C cuts it.

        It runs in the thread that calls `cancel()` and should be short. If it raises, that is logged, no more;
        it may use this token freely. The function that is returned takes the callback off again.
        """
        _check_function(callback)
        key = next(_keys)
        registration = _Callback(self, callback)
        # A derived token without another holder must live as long as its callback, so its ancestors hold it too.
        holders = [token._once for token in self._lineage()]
        holders[0][key] = registration
        for holder in holders[1:]:
            holder[key] = _Keep(registration)

        def unregister() -> None:
            for holder in holders:
                holder.pop(key, None)

        registration.forget = unregister
        cause = self.cause
        if cause is not None:
            interrupt = registration.fire(cause)
            unregister()  # it may have fired before all the holders had it
            if interrupt is not None:
                raise interrupt
        return unregister

    def watch(self, watcher: Callable[[Mode], None]) -> Unregister:
        """Call `watcher(mode)` each time the request becomes more urgent, at once if there is one already.

        It may be called twice with the same mode. For scopes and the like that must also see escalations.
        """
        _check_function(watcher)
        key = next(_keys)
        self._watchers[key] = watcher
        mode = self.mode
        interrupt = None if mode is None else _guarded(watcher, mode)
        if interrupt is not None:
            raise interrupt
        return lambda: self._watchers.pop(key, None) and None

    # --- Linking --------------------------------------------------------------------------------------------------

    def child(self) -> CancellationToken:
        """A token that is cancelled with this one, and can be cancelled alone. This one does not keep it alive."""
        return CancellationToken.any(self)

    @staticmethod
    def any(*tokens: CancellationToken) -> CancellationToken:
        """A token that is cancelled as soon as one of `tokens` is."""
        for token in tokens:
            if not isinstance(token, CancellationToken):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigurationError(f"{token!r} is not a CancellationToken.", todo="Use CancellationToken().")
        linked = CancellationToken()
        linked._parents = tokens
        for token in tokens:
            children, key = token._children, next(_keys)
            # A C function, in which no signal is handled: an exception in a callback like this would be lost.
            children[key] = weakref.ref(linked, functools.partial(children.pop, key))
            cause = token.cause
            if cause is not None:
                linked._spread(cause.from_parent())
                strongest = token.mode
                if strongest is not None and strongest > cause.mode:
                    linked._spread(cause.from_parent(strongest))
        return linked

    def after(self, seconds: float, reason: str = "") -> CancellationToken:
        """A child that is also cancelled, with source `deadline`, after `seconds`.

        Inside an event loop the time is that loop's; elsewhere a timer thread waits, and ends with the token.
        Raises `ConfigurationError` for what is not a number of seconds.
        """
        if not is_seconds(seconds, least=-threading.TIMEOUT_MAX):
            raise ConfigurationError(f"after({seconds!r}) is no time.", todo="Use a number of seconds.")
        child = self.child()
        _start_timer(child, seconds, reason or f"{seconds:g} s have passed")
        return child

    def _lineage(self) -> list[CancellationToken]:
        """This token and everything above it, each once."""
        seen: dict[int, CancellationToken] = {}
        waiting: list[CancellationToken] = [self]
        while waiting:
            token = waiting.pop()
            if id(token) not in seen:
                seen[id(token)] = token
                waiting.extend(token._parents)
        return list(seen.values())

    def __repr__(self) -> str:
        cause = self.cause
        return "<CancellationToken>" if cause is None else f"<CancellationToken cancelled, {cause}, {self.mode}>"


class _Callback:
    """One registration. The first claim fires it, and no other, unless a Ctrl-C has cut it."""

    __slots__ = ("_callback", "_claims", "forget", "token")

    def __init__(self, token: CancellationToken, callback: Callable[[Cause], object]) -> None:
        self.token: Final = token
        self.forget: Unregister | None = None
        self._callback: Final = callback
        self._claims: Final[dict[str, object]] = {}

    def fire(self, cause: Cause) -> KeyboardInterrupt | None:
        claim = object()
        if self._claims.setdefault("fired", claim) is not claim:
            return None
        try:
            interrupt = _guarded(self._callback, cause)
        except KeyboardInterrupt as raised:
            interrupt = raised
        if interrupt is not None:  # it was cut: the stop calls it again
            self._claims.pop("fired", None)
        elif self.forget is not None:  # a registration that has fired keeps nothing alive
            self.forget()
        return interrupt


class _Keep(_Callback):
    """Holds a registration of a derived token, and so the token, without firing it."""

    __slots__ = ()

    def __init__(self, kept: _Callback) -> None:
        super().__init__(kept.token, kept.fire)

    def fire(self, cause: Cause) -> None:
        """Nothing: the derived token fires its own registrations."""


def _check_function(function: object) -> None:
    if not callable(function):
        raise ConfigurationError(f"{function!r} cannot be called when a stop comes.", todo="Give a function.")


def _guarded(function: Callable[[_T], object], argument: _T) -> KeyboardInterrupt | None:
    """Call a callback where nothing may be raised. A Ctrl-C that comes while it runs is handed back."""
    try:
        function(argument)
    except KeyboardInterrupt as interrupt:
        return interrupt
    except BaseException:  # a callback that fails must not keep the stop from the others
        _log.exception("A cancellation callback raised; the stop goes on.")
    return None


def _start_timer(token: CancellationToken, seconds: float, reason: str) -> None:
    """Cancel a token later, without keeping it alive till then."""
    import asyncio  # here, because the workers of killable tools do without

    ref = weakref.ref(token)

    def expire() -> None:
        living = ref()
        if living is not None:
            living.cancel(reason, source="deadline")

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        stop = timer.cancel
    else:
        handle = loop.call_later(seconds, expire)

        def stop() -> None:
            with suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(handle.cancel)

    weakref.finalize(token, stop).atexit = False
    token.watch(lambda _: stop())  # not on_cancel(), through which the parents would keep the token
