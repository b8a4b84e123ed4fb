"""The coding tools, stopped at every point: the folder is what the receipt says."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tool_runs import stray_processes

from quiesce import Agent
from quiesce.messages import Outcome
from quiesce.receipt import Receipt, Undone
from quiesce.testing import ALL_SOURCES, Call, Harness, Say, ScriptedModel, VirtualLoop, stop_everywhere
from quiesce.tools.builtin import coding_tools

pytestmark = [pytest.mark.promise("P4", "P5"), pytest.mark.leaves("tasks")]

FEW = ("loop", "thread", "kill", "task", "after_tools")
# The calls of the workload, and what each does to the text of its file.
WRITES: list[tuple[Call, str, Callable[[str | None], str]]] = [
    (Call("write_file", {"path": "a.txt", "content": "one"}), "a.txt", lambda _: "one"),
    (Call("edit_file", {"path": "./a.txt", "edits": [{"old": "one", "new": "two"}]}), "a.txt", lambda _: "two"),
    (Call("write_file", {"path": "new/b.txt", "content": "b"}), "new/b.txt", lambda _: "b"),
    (Call("write_file", {"path": "a.txt", "content": "three"}), "a.txt", lambda _: "three"),
]


def folder() -> tempfile.TemporaryDirectory[str]:
    place = tempfile.TemporaryDirectory()
    (Path(place.name) / "a.txt").write_text("zero")
    return place


def agent_of(root: str, *turns: list[Call]) -> Agent:
    model = ScriptedModel(*([Say("Let me."), *turn] for turn in turns), then="Done.")
    return Agent(model, tools=coding_tools(root, approve="none"))


def wrong_files(root: str, receipt: Receipt) -> list[str]:
    """The files that cannot be as they are if the receipt is right."""
    possible: dict[str, set[str | None]] = {"a.txt": {"zero"}, "new/b.txt": {None}}
    for (_, path, change), line in zip(WRITES, receipt.calls, strict=False):
        if line.outcome is Outcome.NEVER_STARTED or not line.ok:
            continue
        changed = {change(text) for text in possible[path]}
        possible[path] = changed if line.outcome is Outcome.COMPLETED else possible[path] | changed
    found = {path: (Path(root) / path).read_text() if (Path(root) / path).exists() else None for path in possible}
    return [f"{path}: {text} of {possible[path]}" for path, text in found.items() if text not in possible[path]]


class Files:
    """A workload of edits and writes whose folder is compared with the receipt at the end of each trial."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    async def __call__(self, harness: Harness) -> None:
        place = folder()
        harness.on_close(lambda: self._check(harness, place))
        await harness.invoke(agent_of(place.name, [call for call, _, _ in WRITES]), "go")

    def _check(self, harness: Harness, place: tempfile.TemporaryDirectory[str]) -> None:
        for watched in harness.watched:
            result = watched.run.inspect().result
            assert result is not None
            self.faults += wrong_files(place.name, result.receipt)
        place.cleanup()


def stop_files(sources: tuple[str, ...], stride: int = 1) -> None:
    files = Files()

    async def workload(harness: Harness) -> None:
        await files(harness)

    # No prompt follows: it would write again what the stop has prevented.
    print(stop_everywhere(workload, sources=sources, stride=stride, follow_up=None))
    assert files.faults == []


def test_files() -> None:
    stop_files(FEW, stride=3)


@pytest.mark.proof
def test_files_from_every_source() -> None:
    stop_files(ALL_SOURCES)


def stopped_with_undo(step: int, root: str) -> Receipt | None:
    """The receipt of a run that was stopped with undo before this step; None if it was over by then."""
    loop = VirtualLoop()

    async def main() -> Receipt | None:
        run = agent_of(root, [call for call, _, _ in WRITES]).start("go")
        first = loop.steps

        def before_step() -> None:
            if loop.steps - first == step:
                run.cancel("here", undo=True)

        loop.before_step = before_step
        result = await run
        loop.before_step = None
        return result.receipt if result.stop_reason == "cancelled" else None

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main())


def test_a_stop_with_undo_leaves_the_folder_as_it_was() -> None:
    points = 0
    while True:
        with folder() as root:
            receipt = stopped_with_undo(points + 1, root)
            if receipt is None:
                break
            points += 1
            completed = [line.call_id for line in receipt.calls if line.outcome is Outcome.COMPLETED]
            undone = [line.call_id for line in receipt.undo if line.outcome is Undone.UNDONE]
            assert sorted(undone) == sorted(completed)
            assert [line.name for line in Path(root).iterdir()] == ["a.txt"]
            assert (Path(root) / "a.txt").read_text() == "zero"
    assert points > 15


async def shell_and_processes(harness: Harness) -> None:
    place = folder()
    harness.on_close(place.cleanup)
    turns = (
        [Call("start_process", {"command": "cat"}), Call("shell", {"command": "cat a.txt; sleep 0.01 & true"})],
        [Call("write_process", {"process": "p1", "text": "hello\n"}), Call("read_process", {"process": "p1"})],
        [Call("stop_process", {"process": "p1"}), Call("start_process", {"command": "cat | cat"})],
    )
    await harness.invoke(agent_of(place.name, *turns), "go")


async def shell_with_snapshots(harness: Harness) -> None:
    place = folder()
    harness.on_close(place.cleanup)
    model = ScriptedModel([Say("Let me."), Call("shell", {"command": "echo b > b.txt"})], then="Done.")
    await harness.invoke(Agent(model, tools=coding_tools(place.name, approve="none", snapshot="copy")), "go")


def test_some_points_with_processes() -> None:
    print(stop_everywhere(shell_and_processes, sources=FEW, stride=20))
    print(stop_everywhere(shell_with_snapshots, sources=("loop", "kill"), stride=5))
    assert stray_processes() == []


@pytest.mark.proof
def test_every_point_with_processes() -> None:
    print(stop_everywhere(shell_and_processes, sources=ALL_SOURCES))
    print(stop_everywhere(shell_with_snapshots, sources=ALL_SOURCES))
    assert stray_processes() == []
