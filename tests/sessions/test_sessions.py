"""Agents with sessions: what is saved when, who may write, and what a crash leaves."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from quiesce import Agent, Conversation, Session, ToolContext, tool
from quiesce.conversation.validity import faults
from quiesce.errors import ConfigurationError, ConversationBusy, SessionBusy
from quiesce.events import RunEnded, SessionRecovered, TextDelta, ToolEnded, ToolStarted
from quiesce.fleet import Fleet
from quiesce.hooks import AfterRun
from quiesce.messages import AssistantMessage, Outcome, ToolMessage, UserMessage
from quiesce.run.handle import state_of
from quiesce.sessions.journal.rows import decode_row
from quiesce.sessions.records import WriteBatch, holder
from quiesce.sessions.store import SessionStore
from quiesce.sessions.stores.memory import MemoryStore
from quiesce.sessions.stores.resolve import default_path, resolve_store
from quiesce.testing import Call, Say, ScriptedModel, Stall, Used
from quiesce.usage import Calibration, Provenance

from .conftest import StoreMaker
from .kit import echo, stored

pytestmark = pytest.mark.promise("P9")


def test_a_conversation_goes_on_in_another_agent(new_store: StoreMaker) -> None:
    async def main() -> None:
        model = ScriptedModel([Say("Look. "), Call("echo", {"word": "w"})], "Done.", then="Again.")
        first = await Agent(model, tools=[echo], session=Session("s", new_store())).invoke_async("One")
        second = await Agent(model, tools=[echo], session=Session("s", new_store())).invoke_async("Two")
        assert first.receipt.saved
        assert second.messages[: len(first.messages)] == first.messages
        assert [type(each) for each in second.new_messages] == [UserMessage, AssistantMessage]
        assert model.requests[-1].messages == second.messages[:-1]
        assert stored(new_store()) == second.messages

    asyncio.run(main())


def test_two_agents_take_turns_and_each_sees_what_the_other_said(new_store: StoreMaker) -> None:
    async def main() -> None:
        agents = [Agent(ScriptedModel(then=f"I am {n}."), session=Session("s", new_store())) for n in range(2)]
        for turn in range(4):
            result = await agents[turn % 2].invoke_async(f"Turn {turn}")
            assert len(result.messages) == 2 * (turn + 1)
        assert faults(stored(new_store())) == ()

    asyncio.run(main())


@pytest.mark.promise("P6")
def test_what_was_learnt_about_tokens_goes_with_the_session(new_store: StoreMaker) -> None:
    """Another process estimates what a cut answer cost as well as the one that saw the completed ones."""
    words = "to be or not to be, that is the question " * 20
    model_name = "custom:unknown"

    async def teach() -> None:
        model = ScriptedModel(then=[Say(words), Used(input=40, output=400)], name=model_name)
        agent = Agent(model, session=Session("s", new_store()))
        for _ in range(3):
            await agent.invoke_async("go")

    async def cut() -> tuple[Any, bytes]:
        model = ScriptedModel([Say(words), Stall()], name=model_name)
        agent = Agent(model, session=Session("s", new_store()))
        async for event in (run := agent.start("go")).events():
            if isinstance(event, TextDelta):
                run.cancel()
        return (await run).usage.output, agent.calibration.dump()

    asyncio.run(teach())
    output, learnt = asyncio.run(cut())
    assert output.source is Provenance.CALIBRATED
    assert abs(output.value - 400) <= 4
    assert b"custom:unknown" in learnt


@pytest.mark.promise("P6", "P9")
def test_a_calibration_that_cannot_be_read_is_learnt_anew(store: SessionStore) -> None:
    async def main() -> None:
        model = ScriptedModel(then=[Say("yes " * 60), Used(input=40, output=60)], name="custom:unknown")
        lease = (await asyncio.wrap_future(store.acquire("s", holder("x"), seconds=30))).lease
        batch = WriteBatch("earlier")
        batch.values = {"calibration.custom:unknown": b"{"}
        await asyncio.wrap_future(store.write(lease, batch))
        await asyncio.wrap_future(store.release(lease))
        await Agent(model, session=Session("s", store)).invoke_async("go")
        kept = (await asyncio.wrap_future(store.load("s"))).values["calibration.custom:unknown"]
        assert Calibration.load(kept).ratio("custom:unknown", "prose/bytes") is not None

    asyncio.run(main())


def test_the_other_process_gets_a_clear_error_or_waits(new_store: StoreMaker) -> None:
    async def main() -> None:
        busy = Agent(ScriptedModel([Say("Well"), Stall()], then="Yes."), session=Session("s", new_store()))
        run = busy.start("One")
        async for event in run:
            if isinstance(event, TextDelta):
                break
        other = Agent(ScriptedModel(then="No."), session=Session("s", new_store()))
        with pytest.raises(SessionBusy, match="held by process") as refused:
            await other.invoke_async("Two")
        assert isinstance(refused.value, ConversationBusy)
        assert other.conversation.messages == ()
        waiter = Agent(ScriptedModel(then="Now."), session=Session("s", new_store(), wait=60))
        waiting = waiter.start("Three")
        await asyncio.sleep(0.05)
        assert not waiting.done
        run.cancel("enough")
        assert (await waiting).text == "Now."
        assert [each.text for each in stored(new_store()) if isinstance(each, UserMessage)] == ["One", "Three"]

    asyncio.run(main())


def test_a_stop_does_not_wait_for_a_session_that_is_busy(new_store: StoreMaker) -> None:
    async def main() -> None:
        new_store().acquire("s", holder("somebody"), seconds=1000).result()
        run = Agent(ScriptedModel(then="No."), session=Session("s", new_store(), wait=500)).start("Two")
        await asyncio.sleep(0.05)
        run.cancel("changed my mind")
        result = await asyncio.wait_for(run, 10)
        assert result.stop_reason == "cancelled"
        assert result.receipt.saved is False
        assert "before its session was open" in result.receipt.unsaved
        assert result.messages == ()

    asyncio.run(main())


class Recording(MemoryStore):
    """Notes what is durable at the moment that something happens outside."""

    def journal_now(self) -> list[Any]:
        runs = self.runs("s").result()
        return [decode_row(row.payload) for run in runs for row in self.rows("s", run.run_id, marks=True).result()]


def test_everything_is_saved_before_the_outside_sees_it() -> None:
    store = Recording()
    seen: list[str] = []

    class Watching(ScriptedModel):
        def stream(self, request: Any) -> Any:
            assert stored(store) == request.messages, "the model was asked before the prompt or a result was saved"
            seen.append("model")
            return super().stream(request)

    @tool
    async def effect(ctx: ToolContext) -> str:
        """Do something."""
        assert any(getattr(row, "call_id", None) == ctx.call_id for row in store.journal_now())
        seen.append("tool")
        return "done"

    def after(event: AfterRun) -> None:
        assert stored(store) == event.result.messages
        seen.append("hook")

    async def main() -> None:
        model = Watching([Say("Words. "), Call("effect"), Call("effect")], "The end.")
        agent = Agent(model, tools=[effect], session=Session("s", store), hooks=[after])
        text = ""
        async for event in agent.stream_async("Go"):
            if isinstance(event, TextDelta):
                text += event.text
                assert text in "".join(row.text for row in store.journal_now() if isinstance(row, TextDelta))
            if isinstance(event, RunEnded):
                assert store.load("s").result().unfinished == {}
                assert store.load("s").result().info.holder is None
        assert seen == ["model", "tool", "tool", "model", "hook"]

    asyncio.run(main())


def test_a_key_for_each_call_that_no_other_call_has(new_store: StoreMaker) -> None:
    keys: list[str] = []

    @tool
    async def note(ctx: ToolContext) -> str:
        """Note the key."""
        keys.append(ctx.idempotency_key)
        return "ok"

    async def main() -> None:
        for name in ("s", "s", "t"):
            model = ScriptedModel([Call("note"), Call("note")], "Done.")
            await Agent(model, tools=[note], session=name, store=new_store()).invoke_async("Go")
        await Agent(ScriptedModel([Call("note")], "Done."), tools=[note]).invoke_async("Go")

    asyncio.run(main())
    assert len(set(keys)) == 7


# --- After a crash ---------------------------------------------------------------------------------------------------


def test_a_crash_is_sealed_and_said(new_store: StoreMaker) -> None:
    """The store of a run is cut off from it in the middle of its tools, as a crash would do."""

    async def main() -> None:
        started = asyncio.Event()

        @tool
        async def hang() -> str:
            """Never end."""
            started.set()
            await asyncio.sleep(1000)
            return "no"

        store = new_store()
        model = ScriptedModel([Say("Both: "), Call("echo", {"word": "w"}), Call("hang")], then="Never.")
        agent = Agent(model, tools=[echo, hang], session=Session("s", store))
        run = agent.start("Go")
        async for event in run:
            if isinstance(event, ToolEnded) and event.result.name == "echo" and started.is_set():
                break
            if isinstance(event, ToolStarted) and event.call.name == "hang":
                await started.wait()
                records = state_of(run).turn.view.batch.calls
                if any(record.result for record in records) and state_of(run).saving.journal.backlog == 0:
                    break
        other = new_store()
        if other.url == "memory":
            other._sessions["s"].expires = 0.0  # type: ignore[attr-defined]
            lease = other.acquire("s", holder("next"), seconds=-1).result().lease
        else:
            other._thread.submit(lambda: None).result()  # type: ignore[attr-defined]
            lease = None
        if lease is None:
            session = run.conversation
            lease = other.acquire("s", holder(session._owner), seconds=-1).result().lease  # type: ignore[attr-defined]
        successor = Agent(ScriptedModel(then="I see."), session=Session("s", other))
        events = [event async for event in successor.stream_async("What happened?")]
        (recovered,) = [event for event in events if isinstance(event, SessionRecovered)]
        assert recovered.run_id == run.id
        assert [call.name for call in recovered.unknown] == ["hang"]
        assert faults(successor.messages) == ()
        results = [
            each for message in successor.messages if isinstance(message, ToolMessage) for each in message.results
        ]
        assert [each.outcome for each in results] == [Outcome.COMPLETED, Outcome.UNKNOWN]
        assert other.runs("s").result()[0].status == "crashed"
        assert successor.session is not None
        assert successor.session.crashes[0].run_id == run.id
        run.cancel("over")
        await run.stopped()
        assert stored(new_store()) == successor.messages

    asyncio.run(main())


# --- Configuration ---------------------------------------------------------------------------------------------------


@pytest.mark.feature
def test_stores_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIESCE_HOME", str(tmp_path))
    assert default_path() == tmp_path / "sessions.db"
    assert resolve_store().url == f"sqlite:///{tmp_path}/sessions.db"
    assert resolve_store(tmp_path / "a.db") is resolve_store(f"sqlite:///{tmp_path}/a.db")
    assert resolve_store("memory") is resolve_store("memory")
    assert resolve_store("postgresql://me:secret@db:5432/x?host=y").url == "postgresql://me@db:5432/x"
    for wrong in ("mongodb://x", 7):
        with pytest.raises(ConfigurationError):
            resolve_store(wrong)


@pytest.mark.promise("P9")
@pytest.mark.parametrize("password", ["secret#1", "secret/1", "secret?", "secret@1", "[secret", "1?secret", "1/secret"])
@pytest.mark.parametrize("kind", [lambda url: Session("s", url), Fleet])
def test_a_password_that_is_not_escaped_is_refused_and_not_shown(kind: Any, password: str) -> None:
    """An error said it: `postgresql://me:secret: ValueError: invalid literal for int() with base 10: 'secret'`."""
    with pytest.raises(ConfigurationError, match="%23") as caught:
        kind(f"postgresql://me:{password}@db/x")
    assert "secret" not in str(caught.value)


@pytest.mark.feature
def test_what_makes_no_sense_is_refused() -> None:
    store = MemoryStore()
    for options in (
        {"session": ""},
        {"session": "a\nb"},
        {"session": 3},
        {"session": "s", "conversation": Conversation()},
        {"session": Session("s", store), "store": MemoryStore()},
    ):
        with pytest.raises(ConfigurationError):
            Agent(ScriptedModel(then="x"), **options)  # type: ignore[arg-type]
    for wrong in ({"wait": -1}, {"on_store_failure": "pray"}):
        with pytest.raises(ConfigurationError):
            Session("s", store, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        Agent(ScriptedModel(then="x"), session=Session("s", store)).clear()


def test_the_sync_api_and_a_session_that_is_only_read(new_store: StoreMaker) -> None:
    from quiesce._threads.background_loop import close_portals

    agent = Agent(ScriptedModel(then="Yes."), session=Session("s", new_store()))
    assert agent("One").text == "Yes."
    assert list(agent.stream("Two"))[-1].receipt.saved
    reader = Session("s", new_store())
    assert reader.load_sync() == agent.messages
    assert asyncio.run(reader.load()) == agent.messages
    close_portals()


@pytest.mark.promise("P8")
async def test_a_session_is_not_deleted_under_a_run_of_its_own() -> None:
    """The run lost its lease, and what it had saved was gone."""
    session = Session("s", MemoryStore())
    run = Agent(ScriptedModel([Say("Words."), Stall()]), session=session).start("Go")
    async for event in run:
        if isinstance(event, TextDelta):
            with pytest.raises(ConversationBusy, match=run.id):
                await session.delete()
            run.cancel()
    assert (await run.stopped()).saved
    await session.delete()
    assert session.store.sessions().result() == []


@pytest.mark.parametrize("name", ["", " ", "\0", "\ud800", Path("\0")])
def test_a_name_that_no_file_has_is_no_store(name: str | Path) -> None:
    with pytest.raises(ConfigurationError, match="is not the name of a file"):
        resolve_store(name)


@pytest.mark.promise("P8")
async def test_a_run_that_starts_while_a_session_is_about_to_be_deleted_keeps_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The deletion took the lease from the run: both have the same owner."""
    store = MemoryStore()
    session = Session("s", store)
    agent = Agent(ScriptedModel("Yes.", [Say("Words."), Stall()]), session=session)
    await agent.invoke_async("Go")
    looked, go_on = asyncio.Event(), asyncio.Event()
    load = store.load

    def slow_load(name: str) -> Future[Any]:
        answer: Future[Any] = Future()
        looked.set()
        loop = asyncio.get_running_loop()
        loop.create_task(go_on.wait()).add_done_callback(lambda _: answer.set_result(load(name).result()))
        return answer

    monkeypatch.setattr(store, "load", slow_load)
    deletion = asyncio.create_task(session.delete())
    await looked.wait()
    run = agent.start("Go on")
    async for event in run:
        if isinstance(event, TextDelta):
            break
    go_on.set()
    with pytest.raises(ConversationBusy, match=run.id):
        await deletion
    run.cancel()
    assert (await run.stopped()).saved
    assert len((await asyncio.wrap_future(load("s"))).messages) == 4


@pytest.mark.promise("P9")
def test_a_relative_address_is_that_of_the_folder_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of the folder, the same address was still the file in the folder before."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert resolve_store("sqlite:///s.db").url == f"sqlite:///{tmp_path}/{name}/s.db"
        assert resolve_store("sqlite:///s.db") is resolve_store("s.db")
    with pytest.raises(ConfigurationError, match="is not the name of a file"):
        resolve_store("sqlite:///")


@pytest.mark.promise("P4")
async def test_the_receipt_of_a_stop_whose_reason_cannot_be_sent_is_read_back() -> None:
    """A name that is no text, as the command line hands it over, made the stored receipt count as damaged."""
    session = Session("s", MemoryStore())
    run = Agent(ScriptedModel([Say("Words."), Stall()]), session=session).start("Go")
    async for event in run:
        if isinstance(event, TextDelta):
            run.cancel("no file \udcff")
    await run.stopped()
    stored = await session.receipt(run.id)
    assert stored is not None
    assert str(stored.cause) == "user: no file ?"
