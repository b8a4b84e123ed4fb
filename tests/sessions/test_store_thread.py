"""The thread of a store: there is one of it, whatever comes between."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from quiesce.errors import StoreError
from quiesce.sessions.stores.postgres import PostgresStore
from quiesce.sessions.stores.store_thread import Job, Jobs, StoreThread

from ..support.cut_proxy import CutProxy
from .conftest import Postgres

pytestmark = pytest.mark.promise("P9")


@pytest.mark.parametrize("when", ["before the system has the thread", "while it begins"])
def test_a_ctrl_c_in_the_start_of_the_thread_leaves_one_that_works(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads on one connection of SQLite end the process."""
    thread, started = StoreThread("store under test"), list[threading.Thread]()
    begin = threading.Thread.start
    go = threading.Event()

    def start(self: threading.Thread) -> None:
        started.append(self)
        if len(started) > 1:
            begin(self)
        elif when == "while it begins":  # the system has the thread; Python has not heard of it
            monkeypatch.setattr(self, "_bootstrap_inner", lambda inner=self._bootstrap_inner: (go.wait(10), inner()))  # type: ignore[attr-defined]
            begin_unheard(self)
        if len(started) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        thread.submit(int)
    used: set[int] = set()
    at_once: list[int] = []
    lock, both = threading.Lock(), threading.Event()

    def job() -> None:
        at_once.append(lock.acquire(blocking=False))
        used.add(threading.get_ident())
        both.wait(0.005)  # as long as a write takes: a second thread would take the next job meanwhile
        if at_once[-1]:
            lock.release()

    futures = [thread.submit(job) for _ in range(20)]
    go.set()
    if started[0].ident is not None or when == "while it begins":
        assert started[0]._started.wait(10)  # type: ignore[attr-defined]
    futures += [thread.submit(job) for _ in range(50)]
    for each in futures:
        each.result(10)
    assert len(used) == 1
    assert all(at_once)
    for each in started:
        if each.ident is not None:
            each.join(10)


def begin_unheard(thread: Any) -> None:
    """What `Thread.start` does, without the wait for the thread's first word."""
    import _thread

    threading._limbo[thread] = thread  # type: ignore[attr-defined]
    _thread.start_new_thread(thread._bootstrap, ())


def test_a_listener_that_fails_costs_no_job() -> None:
    class Failing:
        wanted = True

        def wait(self, jobs: Jobs) -> Job | None:
            raise RuntimeError("the connection broke in the middle of a message")

        def wake(self) -> None:
            pass

    listener = Failing()
    thread = StoreThread("store under test", listener)
    assert [thread.submit(int).result(10) for _ in range(3)] == [0, 0, 0]
    listener.wanted = False
    thread.submit(thread.retire).result(10)


def test_a_connection_that_is_cut_while_the_thread_begins_to_listen(postgres: Postgres) -> None:
    """The thread ended with the exception, and what was to be done next waited for ever."""
    proxy = CutProxy(postgres.socket)
    url = postgres.new_database()
    store = PostgresStore(f"postgresql://postgres@127.0.0.1:{proxy.port}{urlsplit(url).path}?sslmode=disable")
    forget = store.subscribe("s", lambda: None)
    try:
        for after in range(1000, 1800, 10):
            proxy.cut()
            proxy.cut(after=after)
            for _ in range(2):
                with suppress(StoreError):
                    store.load("s").result(30)
    finally:
        forget()
        store.close().result(30)
        proxy.close()
