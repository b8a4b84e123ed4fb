"""Loading something large in a thread of its own, and calling what waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable


def start_loading(
    load: Callable[[], object], calls: list[Callable[[], None]], ended: Callable[[], object], *, name: str
) -> None:
    """Call `load` in a thread, then `ended`, then each of `calls`, which may grow until `ended`. Returns at once.

    Where no thread can be started, nothing is loaded, and the rest is called here.
    """

    def load_and_call() -> None:
        try:
            load()
        finally:
            ended()
            call_all(calls)

    try:
        threading.Thread(target=load_and_call, name=name, daemon=True).start()
    except RuntimeError:
        ended()
        call_all(calls)


def call_all(calls: list[Callable[[], None]]) -> None:
    """Call each once, although two threads may be here at the same time."""
    while calls:
        try:
            call = calls.pop()
        except IndexError:
            return
        call()
