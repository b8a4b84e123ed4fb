"""No thread can be started, or no file opened: the store says that it is away for now, and is there again later."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import threading
import tracemalloc  # noqa: F401, what pytest imports when Python complains, and could not without descriptors
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quiesce import Agent, Session
from quiesce.errors import SessionNotFound, StoreUnavailable
from quiesce.sessions.records import holder
from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores.sqlite import SQLiteStore
from quiesce.testing import Say, ScriptedModel

pytestmark = pytest.mark.promise("P9")


@contextmanager
def no_threads() -> Iterator[None]:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        yield


@contextmanager
def no_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.dup(0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 1, before[1]))
    try:
        while True:
            try:
                held.append(os.dup(0))
            except OSError:
                break
        yield
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("nothing_free", [no_threads, no_descriptors])
def test_a_store_is_away_and_comes_back(nothing_free: object, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    with pytest.raises(SessionNotFound):
        store.load("s").result()
    store.close().result()
    with nothing_free():  # type: ignore[operator]
        assert isinstance(store.load("s").exception(), StoreUnavailable)
    with pytest.raises(SessionNotFound):
        store.load("s").result()
    store.close().result()


# Python's own words about an event loop that it could make only half of.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("nothing_free", [no_threads, no_descriptors])
def test_a_run_goes_on_when_threads_and_files_can_be_had_again(nothing_free: object, store: SessionStore) -> None:
    async def main() -> None:
        run = Agent(ScriptedModel(Say("One two three.", pause=0.05)), session=Session("s", store)).start("Go")
        async for _ in run:
            break
        await asyncio.wrap_future(store.close())
        with nothing_free():  # type: ignore[operator]
            await asyncio.sleep(0.2)
        assert (await run).receipt.saved
        await asyncio.wrap_future(store.close())

    asyncio.run(main())
    gc.collect()


def test_a_process_without_descriptors_is_still_known_by_its_start() -> None:
    """Otherwise other processes cannot see that it has ended, or take it for one that has."""
    before = holder("ann")
    with no_descriptors():
        assert holder("ann") == before
    assert not before.is_gone
