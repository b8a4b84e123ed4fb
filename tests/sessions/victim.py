"""A process that starts processes to be killed: `python -m tests.sessions.victim`.

It reads one JSON object per line, forks a child that runs an agent with a session as told, kills it (or lets it kill
itself at a named point), and answers with one line when the child has ended. Forking from a process that has
everything imported makes a kill cost milliseconds. The child writes down, in files that survive it, what it was told
(`acks`) and what its tools did (`witness`).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from typing import Any

from quiesce import Agent, Session, ToolContext, tool
from quiesce.events import RunEnded, TextDelta, ToolEnded
from quiesce.sessions.postgres import PostgresStore
from quiesce.sessions.records import encode
from quiesce.sessions.sqlite import SQLiteStore
from quiesce.testing import Call, Say, ScriptedModel

# Where a process can be killed on purpose: around everything that changes the store, and around what it protects.
POINTS = (
    "acquire:before", "acquire:inside", "acquire:after", "write:before", "write:inside", "write:after",
    "tool:started", "tool:done", "model:called", "delivered",
)  # fmt: skip


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Fuse:
    """Counts how often each named point is passed, and ends the process at the chosen time."""

    def __init__(self, point: str | None, count: int) -> None:
        self._point, self._left = point, count

    def __call__(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                die()


def fused_sqlite(path: str, fuse: Fuse) -> SQLiteStore:
    class Fused(SQLiteStore):
        def _acquire(self, *args: Any) -> Any:
            return around("acquire", super()._acquire, *args)

        def _write(self, *args: Any) -> Any:
            return around("write", super()._write, *args)

        def _transaction(self, **options: Any) -> Any:
            return Inside(super()._transaction(**options))

    class Inside:
        def __init__(self, real: Any) -> None:
            self._real = real

        def __enter__(self) -> Any:
            return self._real.__enter__()

        def __exit__(self, *error: object) -> Any:
            for what in now:
                fuse(f"{what}:inside")
            return self._real.__exit__(*error)

    now: list[str] = []

    def around(what: str, function: Any, *args: Any) -> Any:
        fuse(f"{what}:before")
        now.append(what)
        done = function(*args)
        now.remove(what)
        fuse(f"{what}:after")
        return done

    return Fused(path)


def fused_postgres(url: str, fuse: Fuse) -> PostgresStore:
    class Fused(PostgresStore):
        async def _acquire(self, *args: Any) -> Any:
            return await around("acquire", super()._acquire(*args))

        async def _write(self, *args: Any) -> Any:
            return await around("write", super()._write(*args))

        async def _perform(self, *args: Any, **options: Any) -> Any:
            done = await super()._perform(*args, **options)
            for what in now:
                fuse(f"{what}:after")
            now.clear()
            return done

    now: list[str] = []

    async def around(what: str, work: Any) -> Any:
        fuse(f"{what}:before")
        done = await work
        fuse(f"{what}:inside")
        now.append(what)
        return done

    return Fused(url)


def note(file: int, *words: str) -> None:
    os.write(file, (json.dumps(words) + "\n").encode())


def child(job: dict[str, Any]) -> None:
    fuse = Fuse(job.get("point"), job.get("count", 0))
    url = job["store"]
    store = fused_postgres(url, fuse) if url.startswith("postgres") else fused_sqlite(url, fuse)
    acks = os.open(job["acks"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    witness = os.open(job["witness"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @tool
    async def work(job: str, ctx: ToolContext) -> str:
        """Do something that must not be done twice."""
        note(witness, "start", job, ctx.idempotency_key)
        fuse("tool:started")
        await asyncio.sleep(0.001)
        note(witness, "done", job, ctx.idempotency_key)
        fuse("tool:done")
        return f"did {job}"

    class Watched(ScriptedModel):
        def stream(self, request: Any) -> Any:
            fuse("model:called")
            return super().stream(request)

    async def main() -> None:
        for turn in range(job["prompts"]):
            label = f"{job['label']}.{turn}"
            calls = [Call("work", {"job": f"{label}.{n}"}, id=f"call_{label}_{n}".replace(".", "_")) for n in range(2)]
            model = Watched(
                [Say(f"<{label}> here it comes, word by word. ", chunk=6, pause=0.0005), *calls],
                Say(f"<{label}> and that was all.", chunk=6, pause=0.0005),
            )
            agent = Agent(model, tools=[work], session=Session(job["session"], store, wait=20))
            async for event in agent.stream_async(f"prompt {label}"):
                match event:
                    case TextDelta(text):
                        note(acks, "text", label, text)
                    case ToolEnded(result):
                        note(acks, "result", label, result.call_id, result.text)
                    case RunEnded(reason, receipt):
                        assert receipt.saved, receipt.unsaved
                        note(acks, "ended", label, reason, encode(agent.messages).decode())
                fuse("delivered")

    asyncio.run(main())


def start(job: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child(job)
            status = 0
        except BaseException as error:
            note(2, repr(error))
        finally:
            os._exit(status)
    return pid


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        pid = start(job)
        timer = None
        if job.get("after") is not None:
            timer = threading.Timer(job["after"], os.kill, (pid, signal.SIGKILL))
            timer.start()
        _, status = os.waitpid(pid, 0)
        if timer is not None:
            timer.cancel()
            timer.join()
        print(json.dumps({"status": status}), flush=True)


if __name__ == "__main__":
    main()
