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
import resource
import signal
import sys
import threading
from typing import Any

from quiesce import Agent, Session, ToolContext, tool
from quiesce.errors import StoreError
from quiesce.events import RunEnded, TextDelta, ToolEnded
from quiesce.sessions.journal.rows import encode
from quiesce.sessions.stores.postgres import PostgresStore
from quiesce.sessions.stores.sql_store import SQLStore
from quiesce.sessions.stores.sqlite import SQLiteStore
from quiesce.testing import Call, Say, ScriptedModel

from ..support.programs import fork_child

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


def fused(kind: type[SQLStore], place: str, fuse: Fuse) -> SQLStore:
    """A store that may end the process before, inside and after the transactions of an acquisition and of a write."""

    class Fused(kind):
        def _submit(self, access: Any, operation: Any, *args: Any) -> Any:
            what = operation.__name__
            if what not in ("acquire", "write"):
                return super()._submit(access, operation, *args)

            def fused_operation(*args: Any) -> Any:
                fuse(f"{what}:before")
                done = yield from operation(*args)
                fuse(f"{what}:inside")
                return done

            answer = super()._submit(access, fused_operation, *args)
            answer.add_done_callback(lambda _: fuse(f"{what}:after"))
            return answer

    return Fused(place)  # type: ignore[call-arg]


def note(file: int, *words: str) -> None:
    os.write(file, (json.dumps(words) + "\n").encode())


def child(job: dict[str, Any]) -> None:
    fuse = Fuse(job.get("point"), job.get("count", 0))
    url = job["store"]
    acks = os.open(job["acks"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    witness = os.open(job["witness"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if job.get("file_limit") is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["file_limit"], resource.RLIM_INFINITY))
    if job.get("user") is not None:
        os.setresuid(job["user"], job["user"], job["user"])
    store = fused(PostgresStore if url.startswith("postgres") else SQLiteStore, url, fuse)

    @tool
    async def work(job: str, ctx: ToolContext) -> str:
        """Do something that must not be done twice."""
        note(witness, "start", job, ctx.idempotency_key)
        fuse("tool:started")
        await asyncio.sleep(0.001)
        note(witness, "done", job, ctx.idempotency_key)
        fuse("tool:done")
        return f"did {job}"

    class WatchedRun(ScriptedModel):
        def stream(self, request: Any) -> Any:
            fuse("model:called")
            return super().stream(request)

    more = "more " * job.get("more", 0)

    async def main() -> None:
        for turn in range(job["prompts"]):
            label = f"{job['label']}.{turn}"
            calls = [Call("work", {"job": f"{label}.{n}"}, id=f"call_{label}_{n}".replace(".", "_")) for n in range(2)]
            begin = Say(f"<{label}> here it comes, word by word. " + more, chunk=200 if more else 6, pause=0.0005)
            model = WatchedRun([begin, *calls], Say(f"<{label}> and that was all.", chunk=6, pause=0.0005))
            session = Session(job["session"], store, wait=20, on_store_failure=job.get("failure", "stop"))
            agent = Agent(model, tools=[work], session=session)
            run = agent.start(f"prompt {label}")
            number = 0
            async for event in run:
                number += 1
                note(acks, "event", label, run.id, str(number), encode(event).decode())
                match event:
                    case TextDelta(text):
                        note(acks, "text", label, text)
                    case ToolEnded(result):
                        note(acks, "result", label, result.call_id, result.text)
                    case RunEnded(reason, receipt):
                        kind = "ended" if receipt.saved else "unsaved"
                        note(acks, kind, label, reason, encode(agent.conversation.sealed()).decode(), receipt.unsaved)
                fuse("delivered")
            await run

    try:
        asyncio.run(main())
    except StoreError as error:
        note(acks, "failed", job["label"], type(error).__name__, str(error))


def warm_up() -> None:
    """Have everything imported that a run needs: a child that has become another user may not find it any more."""

    @tool
    async def nothing(word: str) -> str:
        """Do nothing."""
        return word

    model = ScriptedModel([Call("nothing", {"word": "x"})], "Done.")
    asyncio.run(Agent(model, tools=[nothing], session="warm", store="memory").invoke_async("Go"))


def main() -> None:
    warm_up()
    for line in sys.stdin:
        job = json.loads(line)
        pid = fork_child(child, job)
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
