"""A program for the adversary: it has runs in shared sessions, and tells on its standard output what readers see.

Commands come on its standard input: `clock SECONDS` moves its clock, `threads no` and `threads yes`; `reopen`
ends the thread of the store and closes its file or connection, which the next operation needs again; `end`.
"""

from __future__ import annotations

import threading
import time

_real_time, _real_start = time.time, threading.Thread.start
_world = {"clock": 0.0, "threads": True}


def _start(self: threading.Thread) -> None:
    if not _world["threads"]:
        raise RuntimeError("can't start new thread")
    _real_start(self)


time.time = lambda: _real_time() + _world["clock"]  # before anything else is imported
threading.Thread.start = _start

import asyncio  # noqa: E402
import gc  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import sys  # noqa: E402
import traceback  # noqa: E402
from typing import Any  # noqa: E402

from quiesce import Agent, Session  # noqa: E402
from quiesce.errors import StoreError  # noqa: E402
from quiesce.events import TextDelta  # noqa: E402
from quiesce.messages import AssistantMessage  # noqa: E402
from quiesce.run.handle import Run  # noqa: E402
from quiesce.sessions.journal.rows import encode  # noqa: E402
from quiesce.sessions.stores.resolve import resolve_store  # noqa: E402
from quiesce.testing import Say, ScriptedModel, Stall  # noqa: E402

LEASE = 1.0


def tell(*parts: Any) -> None:
    os.write(1, b"\t".join(part if isinstance(part, bytes) else str(part).encode() for part in parts) + b"\n")


class Worker:
    """Has `at_once` runs at a time, each in one of `sessions`, until it is told to end."""

    def __init__(self, url: str, name: str, sessions: int, at_once: int) -> None:
        self.store = resolve_store(url)
        self.name = name
        self.sessions = sessions
        self.at_once = at_once
        self.dice = random.Random(name)
        self.ending = False
        self.number = 0

    async def main(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(0, self.obey)
        await self._import_everything()
        await self._wait_for_threads()
        files = len(os.listdir("/proc/self/fd"))
        tell("ready")
        await asyncio.gather(*(self.have_runs() for _ in range(self.at_once)))
        loop.remove_reader(0)
        await asyncio.wrap_future(self.store.close())
        await self._wait_for_threads()
        gc.collect()
        left = os.listdir("/proc/self/fd")
        print([os.readlink(f"/proc/self/fd/{each}") for each in left[:-1]], file=sys.stderr)
        tell("left", threading.active_count() - 1, len(left) - files)

    async def _wait_for_threads(self) -> None:
        """Wait until the main thread is alone. That of a store ends soon after its `close()`."""
        async with asyncio.timeout(20):
            while threading.active_count() > 1:
                await asyncio.sleep(0.05)

    async def _import_everything(self) -> None:
        """Modules that are imported when they are needed first cannot be imported without descriptors."""
        for _ in range(2):
            model = ScriptedModel([Say("Hello."), Stall()])
            run = Agent(model, session=Session(f"of {self.name}", self.store)).start("Go on.")
            async for event in run:
                if isinstance(event, TextDelta):
                    run.cancel("enough")
        await asyncio.wrap_future(self.store.close())

    def obey(self) -> None:
        for line in os.read(0, 65536).decode().splitlines() or ["end"]:
            match line.split():
                case ["clock", seconds]:
                    _world["clock"] = float(seconds)
                case ["threads", allowed]:
                    _world["threads"] = allowed == "yes"
                case ["reopen"]:
                    self.store.close()
                case _:
                    self.ending = True

    async def have_runs(self) -> None:
        while not self.ending:
            try:
                await self.have_run()
            except Exception:  # nothing may come through but errors of the store
                tell("odd", traceback.format_exc().encode().replace(b"\n", b" | "))
                await asyncio.sleep(0.1)

    async def have_run(self) -> None:
        self.number += 1
        words = [f"<{self.name}.{self.number}.{each}>" for each in range(self.dice.randint(1, 6))]
        model = ScriptedModel(Say("".join(words), chunk=len(words[0]), pause=self.dice.choice((0.001, 0.01, 0.05))))
        session = f"s{self.dice.randrange(self.sessions)}"
        wait = self.dice.choice((0.0, 0.0, 1.0))
        run = Agent(model, session=Session(session, self.store, lease=LEASE, wait=wait)).start("Go on.")
        tell("begin", run.id, session)
        run.tap(lambda event: tell("event", run.id, encode(event)))
        if self.dice.random() < 0.2:
            asyncio.get_running_loop().call_later(self.dice.random() * 0.1, run.cancel, "enough")
        await self._end(run)

    async def _end(self, run: Run) -> None:
        try:
            result: Any = await run
        except StoreError as error:
            result = error.result
        except BaseException:
            tell("odd", f"run {run.id}", traceback.format_exc().encode().replace(b"\n", b" | "))
            return
        answers = [each.text for each in result.new_messages if isinstance(each, AssistantMessage) and each.text]
        error = type(result.error).__name__
        tell("end", run.id, int(bool(result.receipt.saved)), result.stop_reason, error, encode(answers))
        if error != "NoneType":
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    url, name, sessions, at_once = sys.argv[1:]
    asyncio.run(Worker(url, name, int(sessions), int(at_once)).main())
