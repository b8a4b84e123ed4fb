"""Wrote the stores in this folder, with the code of commit cf83db6: `python write.py URL`, where URL is empty yet.

Later code has other names and cannot run it; it stays as a description of what the stores hold. The host and the
process in the leases are made up, so that the files say nothing about the machine that wrote them.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import socket
import sys
import threading
from typing import Any

from quiesce import Agent, Session, handoff, tool
from quiesce.events import TextDelta, ToolStarted
from quiesce.messages import Text, UserMessage
from quiesce.testing import Call, Say, ScriptedModel, Stall, Used

records: Any = importlib.import_module("quiesce.sessions.records")
letters: Any = importlib.import_module("quiesce.sessions.letters")
rows: Any = importlib.import_module("quiesce.sessions.rows")
where: Any = importlib.import_module("quiesce.sessions.where")
socket.gethostname = lambda: "a-host"
records._process_space = lambda: ""


@tool
async def echo(word: str) -> str:
    """Say it again."""
    return word


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
async def die() -> str:
    """End the process in the middle of the call."""
    await asyncio.sleep(0.3)  # the other call is done, and saved
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


async def finished(store: Any) -> None:
    model = ScriptedModel(
        [Say("I ask. ", chunk=3), Call("echo", {"word": "hello"}, id="c1"), Used(input=5, output=7)],
        [Say("It said hello.", chunk=4), Used(input=9, output=3)],
        then="Still here.",
    )
    agent = Agent(model, tools=[echo], session="finished", store=store, name="talker")
    await agent.invoke_async("Ask it")
    await agent.invoke_async("Are you there?")


async def cancelled(store: Any) -> None:
    """The task that waits for the run is cancelled while a child agent answers."""
    child = Agent(ScriptedModel([Say("Looking. "), Stall()]), name="scout")
    model = ScriptedModel([Say("Asking. "), Call("scout", {"prompt": "Go."}, id="c1")])
    agent = Agent(model, tools=[child.as_tool()], session="cancelled", store=store, name="boss")
    begun = asyncio.Event()

    async def read() -> None:
        async for event in agent.stream_async("Go"):
            if isinstance(getattr(event, "event", None), TextDelta):
                begun.set()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])


async def handed(store: Any) -> None:
    french = Agent(ScriptedModel("Bonjour."), name="french")
    model = ScriptedModel([Say("One moment. "), Call("hand_over_to_french", id="c1")])
    agent = Agent(model, tools=[handoff(french)], name="triage", session="handed", store=store)
    await agent.invoke_async("Salut")
    helper = Agent(ScriptedModel([Call("hand_over_to_french", id="c1")]), tools=[handoff(french)], name="helper")
    model = ScriptedModel([Call("helper", {"prompt": "Go."}, id="c2")], "Done.")
    await Agent(model, tools=[helper.as_tool()], session="child handed", store=store).invoke_async("Ask")


async def approval(store: Any) -> None:
    model = ScriptedModel([Say("I pay. "), Call("pay", {"amount": 7}, id="c1")])
    await Agent(model, tools=[pay], session="approval", store=store).invoke_async("Pay")


async def late(store: Any) -> None:
    gate = threading.Event()

    @tool(on_stop="abandon", grace=0.01)
    def plough() -> str:
        """Plough on."""
        gate.wait(30)
        return "ploughed"

    run = Agent(ScriptedModel([Call("plough", id="c1")]), tools=[plough], session="late", store=store).start("Go")
    async for event in run:
        if isinstance(event, ToolStarted):
            run.cancel("enough")
    await run
    gate.set()
    receipt = None
    while receipt is None or not receipt.late:
        receipt = await Session("late", store).receipt(run.id)
        await asyncio.sleep(0.05)


async def crashed(store: Any) -> None:
    model = ScriptedModel(
        "First.",
        [Say("I do it now. ", chunk=4), Call("echo", {"word": "x"}, id="c1"), Call("die", id="c2")],
    )
    agent = Agent(model, tools=[echo, die], session="crashed", store=store, name="victim")
    await agent.invoke_async("One")
    await agent.invoke_async("Two")


async def queued(store: Any) -> None:
    await Agent(ScriptedModel("Yes."), session="queued", store=store).invoke_async("Go")
    lease = store.acquire("queued", records.holder("the-owner"), seconds=1).result().lease
    body = rows.encode(UserMessage((Text("Be short"),)))

    def post(kind: str, words: bytes = b"") -> int:
        sender = records.Holder(f"sender-of-{kind}-{words[:1]!r}", "a-host", 4242)
        return store.post("queued", letters.Request(kind, sender, 1, words, f"{kind}-{len(words)}")).result()

    post("queue")
    taken = post("steer", body)
    assert store.take_letter(lease, taken, "run-that-took-it").result()
    post("steer", body + b" ")
    said = post("steer", body + b"  ")
    batch = records.Batch("run-that-said-it")
    batch.begin, batch.end = records.RunBegin("agent", 1.0), records.RunEnd("ended", "done", 2.0)
    batch.answers = {said: "run-that-said-it"}
    store.write(lease, batch).result()
    store.withdraw("queued", post("queue", b" ")).result()
    post("cancel")


def in_child(url: str, work: Any) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(work(where.resolve_store(url)))
        finally:
            os._exit(1)
    os.waitpid(pid, 0)


def main() -> None:
    url = sys.argv[1]
    in_child(url, crashed)
    store = where.resolve_store(url)
    for work in (finished, cancelled, handed, approval, late, queued):
        print(work.__name__)
        asyncio.run(work(store))
    store.close().result()


if __name__ == "__main__":
    main()
