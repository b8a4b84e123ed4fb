"""Workers are used again, within limits, and leave nothing behind."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
import threading
from pathlib import Path

import oddities
import pytest
from hazards import survivors
from tool_runs import agent_with, call, killable, run_async, stray_processes

from quiesce.events import ToolProgress
from quiesce.messages import Outcome
from quiesce.models.scripted import Call
from quiesce.processes.supervised import fork_server
from quiesce.tools.worker.pool import pool

pytestmark = pytest.mark.promise("P4", "P5")


def test_limits_on_memory_and_processor_time() -> None:
    async def main() -> None:
        greedy = killable(oddities.take_memory, max_memory=50_000_000)
        assert (await call(greedy, {"size": 1000})).text == "1000"
        refused = await call(greedy, {"size": 500_000_000})
        assert refused.text == "It needed more memory than its max_memory of 50,000,000 bytes."
        assert (await call(greedy, {"size": 1000})).text == "1000"
        unlimited = await call(killable(oddities.take_memory), {"size": 200_000_000})
        assert unlimited.text == "200000000"
        burnt = await call(killable(oddities.burn, max_cpu=0.1))
        assert burnt.outcome is Outcome.KILLED
        assert "more processor time than its max_cpu of 0.1 s" in burnt.text

    run_async(main())


def test_a_call_leaves_its_worker_clean(tmp_path: Path) -> None:
    async def main() -> None:
        book = str(tmp_path / "book")
        assert (await call(killable(oddities.leave_a_child), {"book": book})).text == "left"
        assert survivors(book) == []
        assert (await call(killable(oddities.leave_a_thread))).text == "left"
        assert (await call(killable(oddities.close_stdout))).text == "closed"
        assert (await call(killable(oddities.return_in_the_child_too))).text == "parent"
        agent = agent_with(killable(oddities.speak), calls=[Call("speak", {"words": "heard"})])
        run = agent.start("go")
        progress = [event.progress async for event in run if isinstance(event, ToolProgress)]
        assert progress == [{"stdout": "heard\n"}]
        assert stray_processes() == []

    run_async(main())


# --- The next call finds nothing of the one before -----------------------------------------------------------------


def _set_a_variable() -> None:
    os.environ["QUIESCE_TEST"] = "left"


def _go_elsewhere() -> None:
    os.chdir("/")


def _set_an_alarm() -> None:
    signal.setitimer(signal.ITIMER_REAL, 1000)


def _ignore_children() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def _change_the_mask() -> None:
    os.umask(0o777)


def _limit_itself() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40))


def _look_elsewhere() -> None:
    sys.path.insert(0, "/nowhere")


def _log_elsewhere() -> None:
    logging.basicConfig(force=True, level=logging.DEBUG)


def _around() -> list[str]:
    umask = os.umask(0)
    os.umask(umask)
    return [
        os.environ.get("QUIESCE_TEST", "unset"),
        os.getcwd(),
        str(signal.getitimer(signal.ITIMER_REAL)),
        str(signal.getsignal(signal.SIGCHLD)),
        oct(umask),
        str(resource.getrlimit(resource.RLIMIT_AS)),
        str(sys.path),
        f"{logging.root.level} {[type(handler).__name__ for handler in logging.root.handlers]}",
    ]


@pytest.mark.parametrize(
    "change",
    [_set_a_variable, _go_elsewhere, _set_an_alarm, _ignore_children, _change_the_mask, _limit_itself, _look_elsewhere,
     _log_elsewhere],
)  # fmt: skip
@pytest.mark.parametrize("options", [{}, {"max_memory": 10**9, "max_cpu": 100}], ids=["free", "limited"])
def test_a_call_finds_nothing_of_the_one_before(change, options) -> None:
    async def main() -> None:
        look = killable(_around)
        before = (await call(look)).text
        changed = await call(killable(change, **options))
        assert not changed.is_error, changed.text
        assert (await call(look)).text == before

    run_async(main())


def test_a_folder_that_was_removed_is_no_trap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def where() -> str:
        try:
            return os.getcwd()
        except FileNotFoundError:
            return "nowhere"

    async def main() -> None:
        home, gone = tmp_path / "home", tmp_path / "gone"
        home.mkdir()
        gone.mkdir()
        monkeypatch.chdir(gone)
        assert (await call(killable(where))).text == str(gone)
        gone.rmdir()
        assert (await call(killable(where))).text == "nowhere"  # as it is for the host
        monkeypatch.chdir(home)
        assert (await call(killable(where))).text == str(home)

    run_async(main())


def test_a_worker_finds_modules_where_the_host_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def main() -> None:
        await call(killable(oddities.process_id))  # the workers are there before the folder is
        (tmp_path / "found_later.py").write_text("def late() -> str: return 'found'")
        monkeypatch.syspath_prepend(tmp_path)
        import found_later  # pyright: ignore[reportMissingImports]

        assert (await call(killable(found_later.late))).text == "found"

    run_async(main())
    del sys.modules["found_later"]


def test_workers_are_used_again_and_follow_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def environment() -> list[str]:
        return [os.getcwd(), os.environ.get("QUIESCE_TEST", "none")]

    async def main() -> None:
        each = killable(oddities.process_id)
        assert (await call(each)).text == (await call(each)).text
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("QUIESCE_TEST", "set")
        assert (await call(killable(environment))).text == f'["{tmp_path}","set"]'

    run_async(main())


def test_workers_serve_several_loops_and_threads_at_once() -> None:
    found: list[str] = []

    def use() -> None:
        for _ in range(5):
            found.append(asyncio.run(call(killable(oddities.speak), {"words": "x"})).text)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["x"] * 20


def test_nothing_is_left_after_shut_down() -> None:
    from quiesce.processes.kill_tree import descendants

    run_async(call(killable(oddities.speak), {"words": "x"}))
    pid = fork_server.pid
    assert pid is not None
    below = descendants(pid)
    assert below
    pool.shut_down()
    for _ in range(500):
        if not any(Path(f"/proc/{each}").exists() for each in (pid, *below)):
            break
        threading.Event().wait(0.01)
    assert not [each for each in (pid, *below) if Path(f"/proc/{each}").exists()]
    assert run_async(call(killable(oddities.speak), {"words": "again"})).text == "again"
