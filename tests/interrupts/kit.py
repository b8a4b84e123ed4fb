"""Small helpers for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from quiesce.testing import run_virtual


def main(function: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """An async test, in an event loop of its own."""

    def test() -> None:
        asyncio.run(function())

    return _as(test, function)


def virtual(function: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """An async test in virtual time: nothing in it really waits."""

    def test() -> None:
        run_virtual(function())

    return _as(test, function)


def _as(test: Callable[[], None], function: Any) -> Callable[[], None]:
    test.__name__ = function.__name__
    test.__doc__ = function.__doc__
    return test
