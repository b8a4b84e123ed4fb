"""Two owners who do everything that the HTTP interface offers, at random, on one server and its store.

Everything that an owner says has the owner's name in it, and the model repeats all that it was ever told: what crosses
from one owner to the other is seen in a response.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx2

from quiesce import Agent, tool
from quiesce.messages import ToolMessage, UserMessage
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Answer, Call, Say, Stall, Used
from quiesce.server import RunRequest, Settings, create_app
from quiesce.server.app import Application

from .support import Served, serving, two_keys
from .test_owners_apart import (
    Desk,
    Echo,
    Reacting,
    leave_in_context,
    leave_in_environment,
    leave_in_modules,
    prompts,
)

OWNERS: Final = ("ann", "bob")
SESSIONS: Final = tuple(f"s{number}" for number in range(6))
IDS: Final = re.compile(r"[0-9a-f]{12}")
# Fewer than each owner has, so that most are read from the store.
SETTINGS: Final = Settings(keep_runs=8, keep_sessions=4, max_runs_per_key=12, max_wait=60)


@tool(requires_approval=True)
async def pay(secret: str) -> str:
    """Pay."""
    return f"paid for {secret}"


@tool
async def write(secret: str) -> str:
    """Write something that can be taken back."""
    return f"wrote {secret}"


@write.undo
async def unwrite(secret: str) -> None:
    """Take it back."""


class Counted(Echo):
    """Says everything that it was ever told, and counts the requests of each owner."""

    def __init__(self, calls: Counter[str]) -> None:
        self.calls = calls

    def answer(self, request: ModelRequest) -> Answer:
        self.calls[owner_in(prompts(request))] += 1
        return super().answer(request)


class Obedient(Reacting):
    """Does what the prompt says: `say`, `stall`, `ask`, `write`, `clerk`, `context`, or `work` in a worker process."""

    def __init__(self, calls: Counter[str]) -> None:
        self.calls = calls

    def answer(self, request: ModelRequest) -> Answer:
        told = prompts(request)
        what, _, secret = told[-1].partition(" ")
        self.calls[owner_in(told)] += 1
        said = Say(f"I was told {told} and got {[each.results for each in request.messages if is_result(each)]}. ")
        since = max(n for n, message in enumerate(request.messages) if isinstance(message, UserMessage))
        if what == "stall":
            return [said, Stall()]
        if what == "say" or any(is_result(message) for message in request.messages[since:]):
            return [said, Used(input=10, output=10)]
        names = {"ask": ("pay",), "write": ("write",), "context": ("leave_in_context",)}
        calls = [Call(name, {"secret": secret}) for name in names.get(what, ())]
        if what == "clerk":
            calls = [Call("clerk", {"prompt": f"say {secret}"})]
        if what == "work":
            calls = [Call(name, {"secret": secret}) for name in ("leave_in_modules", "leave_in_environment")]
        return [said, *calls, Used(input=10, output=10)]


def is_result(message: Any) -> bool:
    return isinstance(message, ToolMessage)


def owner_in(told: list[str]) -> str:
    """The owner whose prompts these are: not every one has a name, such as the one to go on."""
    return re.findall(r"(ann|bob)-\d+", " ".join(told))[-1]


class World:
    """The server, its store, and what must be true of both owners."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.restarts = 0
        self.keys = two_keys()
        self.owners = {name: Owner(name, self, seed) for seed, name in enumerate(OWNERS)}
        for name, other in (OWNERS, reversed(OWNERS)):
            self.owners[name].other = self.owners[other]

    def app(self, settings: Settings = SETTINGS) -> Application:
        clerk = Agent(Counted(self.calls), name="clerk")
        tools = [pay, write, leave_in_context, leave_in_modules, leave_in_environment, clerk.as_tool(memory=True)]
        agent = Agent(Obedient(self.calls), name="desk", deps_type=Desk, tools=tools)

        def deps(request: RunRequest) -> Desk:
            folder = self.folder / request.owner
            folder.mkdir(exist_ok=True)
            return Desk(request.owner, str(folder))

        return create_app(agent, keys=self.keys[2], deps=deps, store=self.folder / "s.db", settings=settings)

    def play(self, operations: int, *, restart_after: int) -> None:
        """Do so many operations, half of them for each owner at the same time; restart the server now and then."""
        left = operations
        while left > 0:
            with serving(app=self.app()) as served:
                asyncio.run(self._play(served, min(left, restart_after) // 2))
            left -= restart_after
            self.restarts += 1
        with serving(app=self.app(replace(SETTINGS, operators=("ann",)))) as served:
            asyncio.run(self._check_usage(served))

    async def _play(self, served: Served, each: int) -> None:
        async with served.async_client(self.keys[0]) as ann, served.async_client(self.keys[1]) as bob:
            for owner, client in zip(self.owners.values(), (ann, bob), strict=True):
                owner.client = client
            await asyncio.gather(*(owner.play(each) for owner in self.owners.values()))
        gc.collect()  # the generators of streams that were left early are closed by tasks of their own
        await asyncio.sleep(0)
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    async def _check_usage(self, served: Served) -> None:
        """Each request that the model got is in the usage of its owner, whatever was deleted since.

        The operator's sums are the same, before and after the owners' runs are in memory.
        """
        await self._check_sums(served)
        for name, key in zip(OWNERS, self.keys, strict=False):
            async with served.async_client(key) as client:
                usage = (await client.get("/usage")).json()["total"]
            assert usage["calls"] == self.calls[name], (name, usage, self.calls)
        await self._check_sums(served)

    async def _check_sums(self, served: Served) -> None:
        async with served.async_client(self.keys[0]) as ann, served.async_client(self.keys[1]) as bob:
            by_key = (await ann.get("/usage/keys")).json()["keys"]
            assert (await bob.get("/usage/keys")).status_code == 403
        assert {each["key"]: each["usage"]["calls"] for each in by_key} == self.calls


class Owner:
    """One owner: what it has started, and what it does next."""

    def __init__(self, name: str, world: World, seed: int) -> None:
        self.name = name
        self.world = world
        self.random = random.Random(seed)
        self.client: httpx2.AsyncClient
        self.other: Owner
        self.runs: dict[str, str] = {}
        """The runs that were not deleted, each with its prompt."""
        self.sessions: dict[str, str] = {}
        """The sessions of those runs."""
        self.ids: set[str] = set()
        self.said = 0

    async def play(self, operations: int) -> None:
        own: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (30, self.start), (6, self.repeat), (12, self.show), (4, self.list_runs), (4, self.list_sessions),
            (6, self.show_session), (2, self.delete_session), (6, self.delete), (8, self.cancel), (4, self.steer),
            (6, self.resume), (4, self.undo), (4, self.continue_run), (3, self.cancel_tool), (5, self.events),
            (3, self.changes), (2, self.usage), (1, self.agents), (14, self.trespass),
        ]  # fmt: skip
        weights = [weight for weight, _ in own]
        for _ in range(operations):
            ((_, operation),) = self.random.choices(own, weights)
            self.world.done[operation.__name__] += 1
            await operation()

    # --- Requests -----------------------------------------------------------------------------------------------

    async def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """A request, whose response may hold nothing of the other owner."""
        response = await self.client.request(method, path, **options)
        self.check(response.text)
        assert response.status_code < 500, (method, path, response.text)
        return response

    def check(self, text: str) -> None:
        assert not re.search(rf".{{0,80}}{self.other.name}.{{0,80}}", text), (self.name, text)
        assert not self.other.ids.intersection(IDS.findall(text)), (self.name, text)

    def started(self, response: httpx2.Response, prompt: str, session: str | None) -> None:
        if response.status_code == 201:
            run = response.json()["run"]
            self.ids.add(run["id"])
            self.runs[run["id"]], self.sessions[run["id"]] = prompt, run["session"]
            assert session in (None, run["session"])

    def secret(self) -> str:
        self.said += 1
        return f"{self.name}-{self.said}"

    def any_run(self) -> str:
        return self.random.choice(list(self.runs) or ["none"])

    def body(self, kinds: tuple[str, ...] = ("say", "say", "stall", "ask", "write", "clerk", "context")) -> Any:
        what = "work" if self.random.random() < 0.01 else self.random.choice(kinds)
        body: dict[str, Any] = {"prompt": f"{what} {self.secret()}"}
        if self.random.random() < 0.7:
            body["session"] = self.random.choice(SESSIONS)
        return body

    # --- One for each route -------------------------------------------------------------------------------------

    async def start(self) -> None:
        body = self.body()
        response = await self.ask("POST", "/runs", json=body)
        if response.status_code == 429:
            await self.stop_all()
        self.started(response, body["prompt"], body.get("session"))

    async def repeat(self) -> None:
        """The same request twice, with a key that the other owner uses too."""
        body, key = self.body(("say",)), {"Idempotency-Key": f"key-{self.said}"}
        answers = [await self.ask("POST", "/runs", json=body, headers=key) for _ in range(2)]
        for answer in answers:
            self.started(answer, body["prompt"], body.get("session"))
        if answers[0].status_code == 201:
            assert answers[1].status_code == 200
            assert answers[0].json()["run"]["id"] == answers[1].json()["run"]["id"]

    async def stop_all(self) -> None:
        for run in (await self.ask("GET", "/runs?limit=1000")).json()["runs"]:
            if run["state"] not in ("ended", "crashed"):
                await self.ask("POST", f"/runs/{run['id']}/cancel?wait=30")

    async def show(self) -> None:
        run_id = self.any_run()
        response = await self.ask("GET", f"/runs/{run_id}")
        if run_id in self.runs:
            assert response.status_code == 200, response.text
            # The store does not have the prompt that a run goes on with after an answer.
            assert self.runs[run_id] in ("", response.json()["run"]["prompt"]), response.text

    async def list_runs(self) -> None:
        runs = (await self.ask("GET", "/runs")).json()["runs"]
        assert {run["id"] for run in runs} <= self.ids

    async def list_sessions(self) -> None:
        await self.ask("GET", "/sessions")

    async def show_session(self) -> None:
        name = self.random.choice(SESSIONS)
        response = await self.ask("GET", f"/sessions/{name}")
        # Who has a run in it has the session.
        assert response.status_code == (200 if name in self.sessions.values() else response.status_code)

    async def delete_session(self) -> None:
        name = self.random.choice(SESSIONS)
        if (await self.ask("DELETE", f"/sessions/{name}")).status_code == 204:
            self.forget({run_id for run_id, session in self.sessions.items() if session == name})

    async def delete(self) -> None:
        run_id = self.any_run()
        if (await self.ask("DELETE", f"/runs/{run_id}")).status_code == 204:
            self.forget({run_id})

    def forget(self, run_ids: set[str]) -> None:
        for run_id in run_ids:
            del self.runs[run_id], self.sessions[run_id]

    async def cancel(self) -> None:
        body = {"undo": self.random.random() < 0.3, "reason": self.secret()}
        await self.ask("POST", f"/runs/{self.any_run()}/cancel?wait=10", json=body)

    async def steer(self) -> None:
        await self.ask("POST", f"/runs/{self.any_run()}/steer", json={"text": f"say {self.secret()}"})

    async def resume(self) -> None:
        run_id = self.any_run()
        shown = await self.ask("GET", f"/runs/{run_id}")
        asked = shown.json()["run"]["interrupts"] if shown.status_code == 200 else []
        answers = [{"id": each["id"], "answer": self.random.random() < 0.7} for each in asked]
        response = await self.ask("POST", f"/runs/{run_id}/resume", json={"answers": answers})
        self.started(response, "", None)

    async def undo(self) -> None:
        await self.ask("POST", f"/runs/{self.any_run()}/undo?wait=10")

    async def continue_run(self) -> None:
        run_id = self.any_run()
        response = await self.ask("POST", f"/runs/{run_id}/continue")
        self.started(response, "", None)

    async def cancel_tool(self) -> None:
        await self.ask("POST", f"/runs/{self.any_run()}/tools/call_1/cancel")

    async def events(self) -> None:
        run_id = self.any_run()
        await self.ask("POST", f"/runs/{run_id}/cancel?wait=30")
        text = (await self.ask("GET", f"/runs/{run_id}/events")).text
        assert run_id not in self.runs or "event: run_ended" in text

    async def changes(self) -> None:
        async with self.client.stream("GET", "/events") as response, aclosing(response.aiter_lines()) as lines:
            async for line in lines:
                self.check(line)
                if line.startswith("data: "):
                    assert {run["id"] for run in json.loads(line[6:])["runs"]} <= self.ids
                    break

    async def usage(self) -> None:
        async def known() -> int:
            return (await self.ask("GET", "/usage")).json()["total"]["calls"]

        # An entry is opened one step of the loop before its request is sent: it is counted there by the second answer.
        assert await known() <= self.world.calls[self.name] or await known() <= self.world.calls[self.name]

    async def agents(self) -> None:
        await self.ask("GET", "/agents")

    # --- What belongs to the other owner --------------------------------------------------------------------------

    async def trespass(self) -> None:
        """Any route, for a run of the other owner: the same answer as for one that does not exist."""
        target = self.other.any_run()
        method, path, body = self.random.choice((
            ("GET", "", None),
            ("DELETE", "", None),
            ("GET", "/events", None),
            ("POST", "/cancel", {"undo": True}),
            ("POST", "/steer", {"text": self.secret()}),
            ("POST", "/resume", {"answers": []}),
            ("POST", "/undo", {}),
            ("POST", "/continue", {}),
            ("POST", "/tools/call_1/cancel", {}),
        ))  # fmt: skip
        theirs, nothing = [await self.ask(method, f"/runs/{run_id}{path}", json=body) for run_id in (target, "0" * 12)]
        assert (theirs.status_code, theirs.text) == (nothing.status_code, nothing.text) == (404, nothing.text)
