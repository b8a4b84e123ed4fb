"""Workers are used again, within limits, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import hazards
import pytest
from hazards import survivors
from tool_runs import agent_with, call, killable, run_async, stray_processes

from quiesce.events import ToolProgress
from quiesce.messages import Outcome
from quiesce.models.scripted import Call
from quiesce.tools.processes.containment import nursery
from quiesce.tools.processes.workers import pool

pytestmark = pytest.mark.promise("P1", "P4", "P5")


def test_limits_on_memory_and_processor_time() -> None:
    async def main() -> None:
        greedy = killable(hazards.take_memory, max_memory=50_000_000)
        assert (await call(greedy, {"size": 1000})).text == "1000"
        refused = await call(greedy, {"size": 500_000_000})
        assert refused.text == "It needed more memory than its max_memory of 50,000,000 bytes."
        assert (await call(greedy, {"size": 1000})).text == "1000"
        unlimited = await call(killable(hazards.take_memory), {"size": 200_000_000})
        assert unlimited.text == "200000000"
        burnt = await call(killable(hazards.burn, max_cpu=0.1))
        assert burnt.outcome is Outcome.KILLED
        assert "more processor time than its max_cpu of 0.1 s" in burnt.text

    run_async(main())


def test_a_call_leaves_its_worker_clean(tmp_path: Path) -> None:
    async def main() -> None:
        book = str(tmp_path / "book")
        assert (await call(killable(hazards.leave_a_child), {"book": book})).text == "left"
        assert survivors(book) == []
        assert (await call(killable(hazards.leave_a_thread))).text == "left"
        assert (await call(killable(hazards.close_stdout))).text == "closed"
        assert (await call(killable(hazards.return_in_the_child_too))).text == "parent"
        agent = agent_with(killable(hazards.speak), calls=[Call("speak", {"words": "heard"})])
        run = agent.start("go")
        progress = [event.progress async for event in run if isinstance(event, ToolProgress)]
        assert progress == [{"stdout": "heard\n"}]
        assert stray_processes() == []

    run_async(main())


def test_workers_are_used_again_and_follow_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def surroundings() -> list[str]:
        return [os.getcwd(), os.environ.get("QUIESCE_TEST", "none")]

    async def main() -> None:
        each = killable(hazards.process_id)
        assert (await call(each)).text == (await call(each)).text
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("QUIESCE_TEST", "set")
        assert (await call(killable(surroundings))).text == f'["{tmp_path}","set"]'

    run_async(main())


def test_workers_serve_several_loops_and_threads_at_once() -> None:
    found: list[str] = []

    def use() -> None:
        for _ in range(5):
            found.append(asyncio.run(call(killable(hazards.speak), {"words": "x"})).text)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["x"] * 20


def test_nothing_is_left_after_shut_down() -> None:
    from quiesce.tools.processes.reaper import descendants

    run_async(call(killable(hazards.speak), {"words": "x"}))
    pid = nursery.pid
    assert pid is not None
    below = descendants(pid)
    assert below
    pool.shut_down()
    for _ in range(500):
        if not any(Path(f"/proc/{each}").exists() for each in (pid, *below)):
            break
        threading.Event().wait(0.01)
    assert not [each for each in (pid, *below) if Path(f"/proc/{each}").exists()]
    assert run_async(call(killable(hazards.speak), {"words": "again"})).text == "again"
