"""Two API keys on one server: nothing that a run of one leaves anywhere can be found by a run of the other."""

from __future__ import annotations

import asyncio
import builtins
import os
import re
import sys
import types
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from quiesce import Agent, ToolContext, tool
from quiesce.errors import ConfigurationError
from quiesce.events import Delta
from quiesce.hooks import AfterToolCall, BeforeModelCall
from quiesce.messages import AssistantMessage, ToolMessage, UserMessage
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Answer, Call, Say, ScriptedModel, Used
from quiesce.server import RunRequest, Settings, create_app

from .support import Served, serving, start, two_keys

pytestmark = pytest.mark.promise("P8")

OWNERS = ("ann", "bob")

# --- Places to leave something in ---------------------------------------------------------------------------------

left_in_module: list[str] = []


@tool(on_stop="kill")
def leave_in_modules(secret: str) -> str:
    """Leave a secret in the modules of a worker process; returns what was there before."""
    places: list[Any] = [left_in_module]
    places.append(builtins.__dict__.setdefault("left_in_builtins", []))
    places.append(sys.modules.setdefault("left_behind", types.ModuleType("left_behind")).__dict__.setdefault("it", []))
    places.append(vars(leave_in_modules).setdefault("left_in_tool", []))
    found = f"{secret} found {places}"
    for place in places:
        place.append(secret)
    return found


@tool(on_stop="kill")
def leave_in_environment(ctx: ToolContext[Desk], secret: str) -> str:
    """Leave a secret in the environment, in the working directory and in the state of a worker process."""
    folder = Path(ctx.deps.folder) / secret
    folder.mkdir()
    found = (os.environ.get("LEFT"), Path.cwd().name, dict(ctx.state), ctx.owner, ctx.deps)
    os.environ["LEFT"] = secret
    os.chdir(folder)
    ctx.state["worker"] = secret
    return f"{secret} found {found}"


@tool
async def leave_in_context(ctx: ToolContext[Desk], secret: str) -> str:
    """Leave a secret in what the context offers; returns what was there before."""
    found = (list(ctx.deps.drawer), list(ctx.state.get("secrets", [])), ctx.owner, ctx.session, ctx.deps.owner)
    ctx.deps.drawer.append(secret)
    ctx.state.setdefault("secrets", []).append(secret)
    await asyncio.sleep(0)
    return f"{secret} found {found}"


@dataclass
class Desk:
    """The deps of one run."""

    owner: str
    folder: str
    drawer: list[str] = field(default_factory=list)


# --- Models that say what they were told ----------------------------------------------------------------------------


class Reacting:
    """A model whose answers depend on the conversation."""

    name, price, supports_prefill = "reacting", None, False

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        async with ScriptedModel(self.answer(request)).stream(request) as deltas:
            yield deltas

    def answer(self, request: ModelRequest) -> Answer:
        raise NotImplementedError


def prompts(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages if isinstance(message, UserMessage)]


class Worker(Reacting):
    """Calls each tool once with the secret of the prompt. The usage that it reports is ten times more for bob."""

    def answer(self, request: ModelRequest) -> Answer:
        secret = prompts(request)[-1]
        scale = 10 if secret.startswith("bob") else 1
        used = Used(input=100 * scale, output=100 * scale)
        since = max(n for n, message in enumerate(request.messages) if isinstance(message, UserMessage))
        if any(isinstance(message, ToolMessage) for message in request.messages[since:]):
            return [Say("All is done, and here are some words to learn from. " * 4), used]
        names = ("leave_in_modules", "leave_in_environment", "leave_in_context")
        return [*(Call(name, {"secret": secret}) for name in names), Call("clerk", {"prompt": secret}), used]


class Echo(Reacting):
    """Says everything that it was ever told."""

    def answer(self, request: ModelRequest) -> Answer:
        secret = prompts(request)[-1]
        assert all(not isinstance(each, AssistantMessage) or each.text for each in request.messages)
        used = Used(input=50, output=500 if secret.startswith("bob") else 50)
        return [Say(f"I was told {prompts(request)}."), used]


def desk_agent(folder: Path, mixed: list[str]) -> tuple[Agent[Desk, str], Agent[Any, str]]:
    clerk = Agent(Echo(), name="clerk")

    def watch(event: AfterToolCall | BeforeModelCall) -> None:
        owner = event.context.owner
        event.state.setdefault("hooked", []).append(owner)
        if {owner} != {*event.state["hooked"], event.deps.owner}:
            mixed.append(f"{event}: {owner} {event.state} {event.deps}")

    tools = [leave_in_modules, leave_in_environment, leave_in_context, clerk.as_tool(memory=True)]
    return Agent(Worker(), name="desk", deps_type=Desk, tools=tools, hooks=[watch]), clerk


async def run_many(served: Served, owner: str, key: str, runs: int) -> list[dict[str, Any]]:
    """So many runs at once, five in each session; what a client sees of each."""
    async with served.async_client(key, limits=httpx2.Limits(max_connections=runs)) as client:

        async def one(number: int) -> dict[str, Any]:
            body = {"prompt": f"{owner}-{number}", "session": f"session-{number % (runs // 5)}", "on_busy": "queue"}
            run_id = (await client.post("/runs", json=body)).json()["run"]["id"]
            async with client.stream("GET", f"/runs/{run_id}/events") as response:
                async for _ in response.aiter_lines():  # to the end of the run
                    pass
            return (await client.get(f"/runs/{run_id}")).json()

        return list(await asyncio.gather(*(one(number) for number in range(runs))))


@pytest.mark.parametrize(
    ("runs", "stored"),
    [
        pytest.param(10, True, id="stored"),
        pytest.param(50, True, id="many, stored", marks=pytest.mark.proof),
        pytest.param(50, False, id="many, in memory", marks=pytest.mark.proof),
    ],
)
def test_nothing_of_one_owner_reaches_the_other(tmp_path: Path, *, runs: int, stored: bool) -> None:
    mixed: list[str] = []
    agent, clerk = desk_agent(tmp_path, mixed)
    ann, bob, keys = two_keys()

    def deps(request: RunRequest) -> Desk:
        folder = tmp_path / request.owner
        folder.mkdir(exist_ok=True)
        return Desk(request.owner, str(folder))

    app = create_app(
        agent, keys=keys, deps=deps, store=tmp_path / "s.db" if stored else None, settings=Settings(max_wait=60)
    )
    with serving(app=app) as served:

        async def both() -> list[list[dict[str, Any]]]:
            return await asyncio.gather(run_many(served, "ann", ann, runs), run_many(served, "bob", bob, runs))

        seen = dict(zip(OWNERS, asyncio.run(both()), strict=True))
        usage = {}
        for owner, key in (("ann", ann), ("bob", bob)):
            with served.client(key) as client:
                usage[owner] = client.get("/usage").json()
                sessions = client.get("/sessions").json()["sessions"]
                assert {each["name"] for each in sessions} == {f"session-{n}" for n in range(runs // 5)}
    for owner, other in (OWNERS, reversed(OWNERS)):
        texts = [str(run) for run in seen[owner]]
        assert not [hit for text in texts for hit in re.findall(rf".{{60}}{other}.{{60}}", text)]
        assert all(run["receipt"]["stop_reason"] == "end_turn" for run in seen[owner])
        assert all("found" in text and "I was told" in text for text in texts)
        # Workers of an earlier test may still be idle and know what its owner of the same name has said.
        found = {secret for text in texts for secret in re.findall(rf"{owner}-\d+", text)}
        assert found >= {f"{owner}-{number}" for number in range(runs)}
        # State and memory do last from run to run of one owner: the test would see what crosses.
        assert any(len(set(re.findall(rf"{owner}-\d+", text))) > 1 for text in texts)
        assert usage[owner]["total"]["calls"] == 3 * runs
    assert not mixed
    assert left_in_module == []
    assert_nothing_is_shared(agent, clerk)


def assert_nothing_is_shared(agent: Agent[Any, Any], clerk: Agent[Any, Any]) -> None:
    """What the agents of the module have learnt and counted belongs to no key; what was learnt is kept apart."""
    for each in (agent, clerk):
        assert each.calibration.updates == 0
        assert each.usage.calls == 0
        assert (each.state, each.messages, each.active_runs) == ({}, (), ())
        assert each.config.estimator is not None
        learnt = {owner: each.config.estimator.for_owner(owner).calibration for owner in OWNERS}
        ratios = {owner: [*learnt[owner].ratios.get("reacting", {}).values()] for owner in OWNERS}
        assert ratios["ann"]
        assert ratios["bob"]
        assert max(ratio.high for ratio in ratios["ann"]) < min(ratio.low for ratio in ratios["bob"])


# --- Deps on a server -----------------------------------------------------------------------------------------------


@tool
async def whose(ctx: ToolContext[Desk]) -> str:
    """Whose desk it is."""
    return f"desk of {ctx.deps.owner} in {ctx.deps.folder}"


def test_deps_are_made_for_each_run_from_its_request() -> None:
    seen: list[RunRequest] = []

    async def deps(request: RunRequest) -> Desk:
        await asyncio.sleep(0)
        seen.append(request)
        return Desk(request.owner, request.headers["x-room"])

    agent = Agent(ScriptedModel([Call("whose")], [Say("ok")]), name="desk", deps_type=Desk, tools=[whose])
    ann, _, keys = two_keys()
    with serving(app=create_app(agent, keys=keys, deps=deps)) as served, served.client(ann) as client:
        client.headers["X-Room"] = "12"
        run_id = start(client, session="mine")
        served.at_rest(run_id, "ann")
        assert "desk of ann in 12" in client.get(f"/runs/{run_id}").text
    (request,) = seen
    assert (request.owner, request.agent, request.session) == ("ann", "desk", "mine")
    assert "authorization" not in request.headers


def test_an_agent_that_needs_deps_is_not_served_without() -> None:
    agent = Agent(ScriptedModel(), deps_type=Desk)
    with pytest.raises(ConfigurationError, match=r"needs deps of type Desk.*\n?.*deps=lambda request"):
        create_app(agent)
    with pytest.raises(ConfigurationError, match="deps=5 is not a function"):
        create_app(agent, deps=5)  # pyright: ignore[reportArgumentType]
    create_app(agent, deps=lambda request: Desk(request.owner, ""))


def test_deps_that_do_not_fit_refuse_the_run() -> None:
    agent = Agent(ScriptedModel(), deps_type=Desk)
    with serving(app=create_app(agent, deps=lambda _: "no desk")) as served, served.client() as client:
        answer = client.post("/runs", json={"prompt": "hi"})
        assert answer.status_code == 422
        assert "needs deps of type Desk, and got str" in answer.text
        assert client.get("/runs").json()["runs"] == []


@tool(on_stop="kill")
def which_process() -> str:
    """The id of the process."""
    return f"process {os.getpid()}."


async def test_a_worker_process_serves_one_owner_only() -> None:
    async def process(owner: str) -> str:
        agent = Agent(ScriptedModel([Call("which_process")], [Say("ok")]), tools=[which_process])
        result = await agent.invoke_async("which?", owner=owner)
        return re.findall(r"process \d+", str(result.messages))[0]

    of_ann = await process("ann")
    assert await process("bob") != of_ann
    assert await process("") != of_ann
    assert await process("ann") == of_ann
