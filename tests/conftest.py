"""What every test gets: its event loop, and checks that nothing of it is left behind.

An `async def` test runs twice, on asyncio and on uvloop. After each test, tasks, threads, child processes, sockets and
other open files that it began must be gone. A test that is about leaving something behind says so:

    @pytest.mark.leaves("tasks")        # also: "threads", "processes", "files"
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import hypothesis  # noqa: F401  # by now: as it is imported it looks for the owners of objects, and not in what is frozen
import pytest

from quiesce._threads.background_loop import close_portals
from quiesce.processes.supervised import fork_server
from quiesce.tools.worker.pool import pool

from . import collected_marks

LOOPS = ("asyncio", "uvloop")
# How long what a test began may take to end by itself: a thread that has delivered its result is about to.
SETTLING_TIME = 5.0


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "leaves(*kinds): what this test leaves behind on purpose")
    config.addinivalue_line("markers", "one_loop: an async test that runs on asyncio alone, as its subject does")
    if not config.pluginmanager.is_registered(collected_marks):
        config.pluginmanager.register(collected_marks)
    # A shell that runs this in the background has it ignore Ctrl-C, and with it the programs that tests press it for.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # libuv opens a pipe for signals with its first loop and keeps it as long as the process lives.
    with asyncio.Runner(loop_factory=loop_factory("uvloop")) as runner:
        runner.run(asyncio.sleep(0))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test goes first: it mostly waits, and would be waited for alone at the end."""
    items.sort(key=lambda item: "test_a_minute_of_faults" not in item.nodeid)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: a garbage collection in a test need not look at it."""
    gc.collect()
    gc.freeze()


# --- Async tests ----------------------------------------------------------------------------------------------------


def loop_factory(kind: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if kind == "uvloop":
        import uvloop

        return uvloop.new_event_loop
    return asyncio.new_event_loop


@pytest.fixture
def loop_kind() -> str:
    return "asyncio"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if inspect.iscoroutinefunction(metafunc.function):
        metafunc.fixturenames.append("loop_kind")
        only_one = metafunc.definition.get_closest_marker("one_loop") is not None
        metafunc.parametrize("loop_kind", LOOPS[:1] if only_one else LOOPS)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames  # type: ignore[attr-defined]
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}
    with asyncio.Runner(loop_factory=loop_factory(pyfuncitem.callspec.params["loop_kind"])) as runner:
        runner.run(pyfuncitem.obj(**arguments))
    return True


# --- Nothing is left behind -----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    allowed = {kind for mark in request.node.iter_markers("leaves") for kind in mark.args}
    if "injection" in request.node.path.parts:
        allowed.add("tasks")  # the injector looks for them itself, at every point, and some tests leave one for it
    left_tasks = _note_tasks_left_at_the_end_of_a_loop(monkeypatch)
    threads, processes, files = _threads(), _processes(), _files()
    yield
    close_portals()
    if any("Unraisable" in kind for mark in request.node.iter_markers("filterwarnings") for kind in mark.args):
        gc.collect()  # what this test may leave behind is found in it, and not in the next one
    left = {
        "tasks": left_tasks,
        "threads": _wait_for(lambda: sorted(_threads() - threads)),
        "processes": _wait_for(lambda: sorted(_processes() - processes)),
        "files": _wait_for(lambda: sorted(_files() - files)),
    }
    found = {kind: names for kind, names in left.items() if names and kind not in allowed}
    assert not found, f"left behind: {found}"


@pytest.fixture(autouse=True)
def no_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test writes where the sessions of the person are who runs it: one that needs such a folder has its own."""
    home = tmp_path_factory.getbasetemp() / "no_home"
    monkeypatch.setenv("QUIESCE_HOME", str(home))
    yield
    written = sorted(each.name for each in home.iterdir()) if home.exists() else []
    shutil.rmtree(home, ignore_errors=True)
    assert not written, f"written to the user's own folder: {written}"


def _note_tasks_left_at_the_end_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whoever closes a runner has its remaining tasks cancelled in silence. Here they are written down first."""
    left: list[str] = []
    close = asyncio.Runner.close

    def note_and_close(runner: asyncio.Runner) -> None:
        with suppress(RuntimeError):  # it was closed before
            left.extend(task.get_name() for task in asyncio.all_tasks(runner.get_loop()))
        close(runner)

    monkeypatch.setattr(asyncio.Runner, "close", note_and_close)
    return left


def _wait_for(left: Callable[[], list[str]]) -> list[str]:
    """What is left once everything that is about to end has ended."""
    found = left()
    if found:
        gc.collect()
    end = time.monotonic() + SETTLING_TIME
    while (found := left()) and time.monotonic() < end:
        time.sleep(0.005)
    return found


def _threads() -> set[str]:
    return {
        f"{thread.name} ({thread.ident})"
        for thread in threading.enumerate()
        if thread.is_alive() and not thread.name.startswith(("pytest", "Dummy", "execnet"))
    }


def _processes() -> set[str]:
    if sys.platform != "linux":
        return set()
    found: set[str] = set()
    for children in Path("/proc/self/task").glob("*/children"):
        try:
            found.update(children.read_text().split())
        except OSError:  # that thread has just ended
            continue
    return found - {str(fork_server.pid)}  # it stays, with the idle workers below it, for the next call


def _files() -> set[str]:
    """Sockets, pipes and event-loop descriptors. What the interpreter itself opens, such as modules, does not count."""
    if sys.platform != "linux":
        return set()
    found: set[str] = set()
    kept = pool.kept()
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:  # the listing's own descriptor
            continue
        if target.startswith(("socket:", "pipe:", "anon_inode:")) and int(entry) not in kept:
            found.add(f"{entry} {target}")
    return found
