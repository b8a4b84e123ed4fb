"""`quiesce chat --url`: the chat with an agent of a server."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

pytest.importorskip("textual")

from quiesce import Agent, tool
from quiesce.cli import main
from quiesce.cli.chat_remote import RemoteBackend, check_server
from quiesce.client import Client
from quiesce.errors import ConfigurationError
from quiesce.events import InterruptRaised
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.server import create_app

from ..server.support import serving
from . import agents
from .pilot import AT_REST, pilot_chat

pytestmark = [pytest.mark.promise("P4"), pytest.mark.one_loop]


@pytest.mark.promise("P1", "P4")
async def test_a_chat_with_a_server_answers_is_stopped_and_steered() -> None:
    with serving(agents.endless()) as served:
        backend = RemoteBackend(Client(served.url), session="talk")
        async with pilot_chat(backend=backend) as shown:
            await shown.wait(rf"endless · scripted · {served.url} · talk")
            await shown.say("tell me")
            await shown.wait("Esc stops the answer; the text so far stays")
            await shown.say("shorter please")
            after = await shown.wait(lambda text: "Very well." in text and AT_REST in text)
            assert "shorter please  steers" in after
        async with pilot_chat(backend=RemoteBackend(Client(served.url), session="talk")) as shown:
            await shown.wait(r"Session talk goes on.\s+you: shorter please\s+agent: Very well.")
            await shown.say("/sessions")
            await shown.wait(r"\* talk  4 messages")
            await shown.say("/usage")
            await shown.wait("all runs of this key: .* in, .* out")


@pytest.mark.promise("P1", "P4")
async def test_a_run_that_goes_on_is_followed_and_can_be_stopped() -> None:
    with serving(agents.slow_tool()) as served:
        async with Client(served.url) as client:
            run = await client.start_run("build it", session="work")
        async with pilot_chat(backend=RemoteBackend(Client(served.url), session="work")) as shown:
            await shown.wait(f"Its run {run.id} is going on.")
            await shown.wait(r"Esc stops build \(it has 30 s to end\)")
            await shown.press("escape")
            await shown.wait(r"Stopping: waiting for build, \d+ s · Esc again forces it")
            await shown.press("escape")
            after = await shown.wait(AT_REST)
            assert "was stopped (user: Esc)" in after
            assert "mode kill" in after


async def test_approvals_of_a_server_have_the_same_keys_also_after_the_chat_was_left() -> None:
    with serving(agents.careful()) as served:
        async with pilot_chat(backend=RemoteBackend(Client(served.url), session="clean")) as shown:
            await shown.say("clean up")
            await shown.wait("delete: y approves, n denies")
        async with pilot_chat(backend=RemoteBackend(Client(served.url), session="clean")) as shown:
            await shown.wait(r"delete\(path='a.txt'\) needs your approval")
            await shown.wait("delete: y approves, n denies")
            await shown.press("y")
            await shown.wait(lambda text: "a.txt is gone" in text and "As you wish." in text and AT_REST in text)


@pytest.mark.promise("P1", "P4")
async def test_a_stop_that_does_not_reach_the_server_is_said_and_the_next_one_is_ordinary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(agents.endless()) as served:
        client = Client(served.url)
        async with pilot_chat(backend=RemoteBackend(client)) as shown:
            await shown.say("tell me")
            await shown.wait("Esc stops the answer")
            with monkeypatch.context() as away:
                away.setattr(client, "_timeout", 1e-6)
                await shown.press("escape")
                await shown.wait("The stop has not reached the server: No answer from")
            await shown.wait("Esc stops the answer")
            await shown.press("escape")
            after = await shown.wait(AT_REST)
            assert "mode now" in after


async def test_resume_takes_the_last_session_or_the_named_one_and_refuses_others() -> None:
    with serving(agents.short()) as served:
        async with Client(served.url) as client:
            with pytest.raises(ConfigurationError, match="no session yet"):
                await check_server(client, None, None, "")
            for name in ("first", "second"):
                run = await client.start_run("hi", session=name)
                async for _ in client.stream_events(run.id):
                    pass
            assert await check_server(client, None, None, "") == "second"
            assert await check_server(client, "short", None, "first") == "first"
            with pytest.raises(ConfigurationError, match="no session 'third'"):
                await check_server(client, None, None, "third")
            with pytest.raises(ConfigurationError, match=r"no agent 'long'.* It has: short"):
                await check_server(client, "long", None, None)


def test_options_that_do_not_fit_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for line in ("chat --url http://x --model scripted", "chat --key k", "chat --session a --resume b"):
        with pytest.raises(SystemExit) as usage:
            main(line.split())
        assert usage.value.code == 2
    store = str(tmp_path / "chats.db")
    capsys.readouterr()
    assert main(["chat", "--agent", "tests.cli.agents:short", "--store", store, "--resume"]) == 1
    assert "There is no saved conversation yet." in capsys.readouterr().err
    assert main(["chat", "--agent", "tests.cli.agents:short", "--store", store, "--resume", "x"]) == 1
    assert "There is no session 'x'." in capsys.readouterr().err


@pytest.mark.promise("P1", "P4")
async def test_a_run_that_is_being_started_when_the_chat_is_left_is_stopped() -> None:
    asked, go_on = threading.Event(), threading.Event()

    async def deps(_: object) -> str:
        asked.set()
        await asyncio.to_thread(go_on.wait, 30)
        return "deps"

    with serving(app=create_app(agents.endless(), deps=deps)) as served:
        async with pilot_chat(backend=RemoteBackend(Client(served.url), session="left")) as shown:
            await shown.say("tell me")
            assert await asyncio.to_thread(asked.wait, 30)
            await shown.press("ctrl+q")
            go_on.set()
            await shown.wait_for_exit()
        async with Client(served.url) as client:
            (run,) = await client.list_runs()
            assert run.cause is not None
            assert run.cause.reason == "stopped at its start"


@pytest.mark.promise("P4")
async def test_a_question_of_a_run_that_goes_on_is_answered_once_and_the_run_shown_once() -> None:
    go_on = threading.Event()

    @tool
    async def hold() -> str:
        """Wait for the test."""
        await asyncio.to_thread(go_on.wait, 30)
        return "held"

    script = ScriptedModel([Call("delete", {"path": "a.txt"}), Call("hold")], then="As you wish.")
    with serving(Agent(script, tools=[agents.delete, hold], name="both")) as served:
        async with Client(served.url) as client:
            run = await client.start_run("clean up", session="both")
            async for each in client.stream_events(run.id):
                if isinstance(each.event, InterruptRaised):
                    break
        async with pilot_chat(backend=RemoteBackend(Client(served.url), session="both")) as shown:
            await shown.wait("Esc stops hold")
            await shown.say("/approve")
            await shown.wait("Approved: delete.* This is sent when the run is at rest")
            go_on.set()
            after = await shown.wait(lambda text: "As you wish." in text and AT_REST in text)
            assert after.count("a.txt is gone") == 1
            assert after.count("As you wish.") == 1
