"""Processes to be killed in the middle of a task: `python -m tests.task.killed_workshop`.

It reads one JSON object per line, forks a child that goes on with the task as told, and answers with one line when the
child and everything that it started have ended. The child kills itself (SIGKILL) before a chosen step of its event
loop, or is killed after a chosen time. What it did is in a file that survives it (`witness`): each request to a model,
each file that was written, and each that was restored.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from quiesce import Agent, Limits, Run, Session
from quiesce.errors import SessionNotFound
from quiesce.events import Delta
from quiesce.messages import AssistantMessage
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.tools.builtin import coding_tools
from quiesce.tools.builtin.folder import Folder

from ..support.programs import fork_child

# Each path is written by one call of one agent, and by no other.
BEFORE: Final = {"a.txt": "old", "b.txt": "old", "readme.txt": "old"}
AFTER: Final = {**dict.fromkeys(BEFORE, "new"), "review.txt": "new", "built.txt": "new\n", "tests.txt": "new\n"}
CALLS: Final = {
    "a.txt": ("edit_file", "a"),
    "review.txt": ("reviewer", "r"),
    "built.txt": ("shell", "x"),
    "b.txt": ("edit_file", "b"),
    "readme.txt": ("edit_file", "m"),
    "tests.txt": ("tester", "t"),
}
TURNS: Final = 10  # of the lead and its two sub-agents together; the whole task takes as many
TOOL_CALLS: Final = 8


def edit(path: str, id: str) -> Call:
    return Call("edit_file", {"path": path, "edits": [{"old": "old", "new": "new"}]}, id)


def command(path: str, id: str) -> Call:
    return Call("shell", {"command": f"echo new > {path}"}, id)


LEAD: Final = (
    [edit("a.txt", "a")],
    [Call("reviewer", {"prompt": "Review."}, "r")],
    [command("built.txt", "x")],
    [edit("b.txt", "b"), edit("readme.txt", "m")],
    [Call("tester", {"prompt": "Test."}, "t")],
)
REVIEWER: Final = ([Call("write_file", {"path": "review.txt", "content": "new"}, "n")],)
TESTER: Final = ([command("tests.txt", "y")],)

Note = Callable[..., None]


class Steps(ScriptedModel):
    """Plays the first of its answers whose calls are not in the conversation yet, so that another process goes on."""

    def __init__(self, answers: tuple[list[Call], ...], note: Note) -> None:
        super().__init__()
        self._answers, self._note = answers, note

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        self._note("request")
        messages = [each for each in request.messages if isinstance(each, AssistantMessage)]
        made = {call.id for each in messages for call in each.tool_calls}
        left = [answer for answer in self._answers if not made & {call.id for call in answer}]
        async with ScriptedModel(left[0] if left else "Done.").stream(request) as deltas:
            yield deltas


def lead(folder: str, session: Session, note: Note) -> Agent:
    tools = {tool.name: tool for tool in coding_tools(folder, approve="none", snapshot="copy")}
    reviewer = Agent(Steps(REVIEWER, note), name="reviewer", tools=[tools["write_file"]])
    tester = Agent(Steps(TESTER, note), name="tester", tools=[tools["shell"]])
    own = [tools["edit_file"].with_(requires_approval=True), tools["shell"], reviewer, tester]
    limits = Limits(turns=TURNS, tool_calls=TOOL_CALLS)
    return Agent(Steps(LEAD, note), name="lead", tools=own, session=session, limits=limits)


def watch_files(note: Note) -> None:
    """Note each write to the folder by a tool or by an undo, after it has happened."""
    replace, remove = Folder.replace, Folder.remove

    def noted_replace(self: Folder, path: str, content: bytes, mode: int | None) -> tuple[str, ...]:
        made = replace(self, path, content, mode)
        note("write", os.path.basename(path), content.decode())
        return made

    def noted_remove(self: Folder, path: str) -> None:
        remove(self, path)
        note("remove", os.path.basename(path))

    Folder.replace, Folder.remove = noted_replace, noted_remove  # type: ignore[method-assign]


class Counting(asyncio.SelectorEventLoop):
    """An event loop that calls functions before steps of their own."""

    def __init__(self, at: dict[int, Callable[[], object]]) -> None:
        super().__init__()
        self._at, self.steps = at, 0

    def _run_once(self) -> None:
        self.steps += 1
        if self.steps in self._at:
            self._at[self.steps]()
        super()._run_once()  # type: ignore[misc]


def child(job: dict[str, Any]) -> None:
    witness = os.open(job["witness"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(*words: str) -> None:
        os.write(witness, (json.dumps(words) + "\n").encode())

    watch_files(note)
    runs: list[Run[Any]] = []

    def stop() -> None:
        for run in runs[-1:]:
            run.cancel("enough", undo=job["undo"] or None)

    async def main() -> None:
        session = Session("s", job["store"])
        agent = lead(job["folder"], session, note)
        if job["action"] == "undo":
            undone = await agent.undo_async()
            note("undone", json.dumps([[each.call_id, each.name, each.outcome, each.detail] for each in undone]))
            return
        with suppress(SessionNotFound):
            await session.load()
        if session.interrupts:
            runs.append(agent.start_answer({session.interrupts[0].id: True}))
        else:  # a process that was killed early enough has left no prompt
            runs.append(agent.start_continue() if session.messages else agent.start("go"))
        while (result := await runs[-1]).interrupts:
            note("asked")
            runs.append(agent.start_answer({result.interrupts[0].id: True}))
        receipt = result.receipt
        undone = [[each.call_id, each.name, each.outcome, each.detail] for each in receipt.undo]
        note("ended", result.stop_reason, json.dumps(undone))

    points: dict[int, Callable[[], object]] = {}
    if job.get("stop_at"):
        points[job["stop_at"]] = stop
    if job.get("kill_at"):
        points[job["kill_at"]] = lambda: os.kill(os.getpid(), signal.SIGKILL)
    with asyncio.Runner(loop_factory=lambda: Counting(points)) as runner:
        runner.run(main())
        note("steps", str(runner.get_loop().steps))  # type: ignore[attr-defined]


def wait_for_all(pid: int) -> int:
    """Wait for a child, and for everything that it has left: this process adopts those."""
    found = None
    while True:
        try:
            ended, status = os.waitpid(-1, 0)
        except ChildProcessError:
            assert found is not None
            return found
        if ended == pid:
            found = status


def warm_up() -> None:
    """Import what a run needs, so that a child takes milliseconds."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "folder")
        make_folder(folder)
        agent = lead(str(folder), Session("s", Path(place, "s.db")), lambda *_: None)
        asyncio.run(agent.invoke_async("go"))
        assert agent.session is not None
        agent.session.store.close().result()


def main() -> None:
    warm_up()
    assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
    for line in sys.stdin:
        job = json.loads(line)
        pid = fork_child(child, job)
        timer = None
        if job.get("kill_after") is not None:
            timer = threading.Timer(job["kill_after"], os.kill, (pid, signal.SIGKILL))
            timer.start()
        status = wait_for_all(pid)
        if timer is not None:
            timer.cancel()
            timer.join()
        print(json.dumps({"status": status}), flush=True)


def make_folder(folder: Path) -> None:
    folder.mkdir()
    for name, content in BEFORE.items():
        (folder / name).write_text(content)


if __name__ == "__main__":
    main()
