"""`quiesce chat` on a full screen, in this process. The same in a real terminal is in test_terminal."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("textual")

from quiesce import Agent, tool
from quiesce.cli.chat_widgets import Composer, Note
from quiesce.errors import QuiesceError
from quiesce.messages import UserMessage
from quiesce.models.scripted import Call, Say, ScriptedModel
from quiesce.sessions import resolve_store

from . import agents
from .pilot import AT_REST, pilot_chat

pytestmark = [pytest.mark.promise("P4"), pytest.mark.one_loop]


@pytest.mark.promise("P1")
async def test_esc_again_forces() -> None:
    async with pilot_chat("slow_tool") as shown:
        await shown.say("build it")
        await shown.wait(r"build\(target='all'\).* 30%.*step 3")
        await shown.wait(r"Esc stops build \(it has 30 s to end\)")
        await shown.press("escape")
        stopping = await shown.wait(r"Stopping: waiting for build, \d+ s · Esc again forces it")
        assert "was stopped" not in stopping  # not before it is true
        await shown.press("escape")
        after = await shown.wait(AT_REST)
        assert re.search(r"at rest .* mode kill", after)
        assert "✗ build(target='all')  cancelled while running" in after


@pytest.mark.promise("P8")
async def test_ctrl_c_once_leaves_nothing_and_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("quiesce.cli.chat_screen.time", SimpleNamespace(monotonic=lambda: now[0]))
    async with pilot_chat("short") as shown:
        await shown.press("ctrl+c")
        await shown.wait("Ctrl-C again leaves")
        now[0] += 2.1
        await shown.wait(AT_REST)  # the hint is itself again: this Ctrl-C is forgotten
        await shown.press("ctrl+c")
        await shown.wait("Ctrl-C again leaves")
        await shown.say("hi")
        await shown.wait("Hello there")


@pytest.mark.promise("P2", "P3")
async def test_enter_while_running_steers() -> None:
    async with pilot_chat("endless") as shown:
        await shown.say("tell me")
        await shown.wait("Bread is")
        await shown.say("shorter please")
        after = await shown.wait(lambda text: "Very well." in text and AT_REST in text)
        assert re.search(r"shorter please  steers", after)
        assert "was stopped" not in after  # it is one run
        assert "Bread is" in after


async def test_tab_queues_and_a_stop_holds_the_queue() -> None:
    gate = asyncio.Event()

    @tool
    async def hold() -> str:
        """Wait for the test."""
        await gate.wait()
        return "held"

    agent = Agent(ScriptedModel([Say("First."), Call("hold")], "Done.", then="Second."), tools=[hold])
    async with pilot_chat(agent) as shown:
        await shown.say("one")
        await shown.wait("First.")
        await shown.wait("Esc stops hold")
        await shown.type("two")
        await shown.press("tab")
        await shown.wait(r"queued: two")
        gate.set()
        await shown.wait(lambda text: "Second." in text and AT_REST in text)
    async with pilot_chat("stalled") as shown:
        await shown.say("one")
        await shown.wait("One moment")
        await shown.type("two")
        await shown.press("tab")
        await shown.wait(r"Tab queues · 1 queued")
        await shown.press("escape")
        held = await shown.wait("1 queued: Enter sends the next")
        assert "Very well." not in held
        await shown.press("enter")
        await shown.wait("Very well.")


async def test_commands() -> None:
    async with pilot_chat("slow_tool", size=(100, 60)) as shown:
        await shown.say("build it")
        await shown.wait("step 3")
        await shown.say("/ps")
        await shown.wait(r"run [0-9a-f]{12}  acting\s+build  \d")
        await shown.say("/undo")
        await shown.wait("A run is going on: stop it first")
        await shown.say("/stop build")
        await shown.wait("Stopping build; the run goes on")
        await shown.say("/stop kill")
        await shown.wait("Stop requested, mode kill")
        await shown.wait(AT_REST)
        await shown.say("/usage")
        await shown.wait(r"model calls +1")
        await shown.say("/undo")
        await shown.wait(r"Removed \d+ messages from the conversation.")
        await shown.say("/sessions other")
        await shown.wait("New session other")
        await shown.say("/sessions")
        await shown.wait(r"main  0 messages\s+\* other  0 messages")
        await shown.say("/nonsense")
        await shown.wait("There is no command /nonsense")
        await shown.say("/help")
        await shown.wait("undo the last prompt and what its tools did")
        await shown.say("/quit")
        await shown.wait_for_exit()


@pytest.mark.promise("P3")
async def test_a_failure_is_shown_and_the_next_prompt_works() -> None:
    async with pilot_chat("failing") as shown:
        await shown.say("hi")
        after = await shown.wait(lambda text: "The key was refused" in text and AT_REST in text)
        assert "Failed" in after
        assert "I will" in after


@pytest.mark.parametrize(("answer", "outcome"), [("/approve", "a.txt is gone"), ("/deny not today", "not today")])
async def test_a_tool_that_needs_approval_waits_for_it(answer: str, outcome: str) -> None:
    async with pilot_chat("careful") as shown:
        await shown.say("clean up")
        await shown.wait(r"delete\(path='a.txt'\) needs your approval: y, n, e to edit, a for always")
        asked = await shown.wait("delete: y approves, n denies, e edits, a approves always")
        assert "is gone" not in asked
        assert "-a.txt" in asked
        assert "+nothing\N{REPLACEMENT CHARACTER}[2J" in asked
        await shown.say(answer)
        after = await shown.wait(lambda text: "As you wish." in text and AT_REST in text and outcome in text)
        assert ("is gone" in after) == (answer == "/approve")
        await shown.say("/undo")
        await shown.wait("Removed 4 messages from the conversation")


@pytest.mark.promise("P4", "P5")
async def test_what_was_left_behind_is_said_and_so_is_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = tmp_path / "go on"
    monkeypatch.setenv("GO_ON", str(go_on))
    async with pilot_chat("digging") as shown:
        await shown.say("dig")
        await shown.wait(r"Esc stops waiting for dig after 0.1 s \(it may go on\)")
        await shown.press("escape")
        after = await shown.wait("At rest, but dig may still be running · Esc has nothing to stop")
        assert "abandoned, may still be running" in after
        await shown.say("/ps")
        await shown.wait(r"run [0-9a-f]{12} abandoned: dig")
        go_on.touch()
        await shown.wait(r"dig, which was abandoned, has finished after all, [\d.]+ s after the end: a hole")
        await shown.wait(AT_REST)
        await shown.say("/ps")
        await shown.wait("Nothing is running.")


@pytest.mark.promise("P4")
async def test_undo_takes_back_what_the_tools_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    monkeypatch.setenv("FILES", f"{one} {two}")
    async with pilot_chat("writing", size=(100, 40)) as shown:
        await shown.say("write them")
        await shown.wait(lambda text: "All written." in text and AT_REST in text)
        assert one.exists()
        assert two.exists()
        await shown.say("/undo")
        await shown.wait("Removed 4 messages from the conversation")
        after = shown.text
        assert after.count("write: undone") == 2
        assert "mail: has no undo, what it did stays done" in after
        assert not one.exists()
        assert not two.exists()
        await shown.say("/undo")
        await shown.wait("There is nothing to undo.")


@pytest.mark.promise("P1", "P4")
async def test_esc_stops_an_undo_and_the_conversation_keeps_what_is_not_undone() -> None:
    async with pilot_chat("booking", size=(100, 40)) as shown:
        await shown.say("book them")
        await shown.wait(lambda text: "Booked." in text and AT_REST in text)
        await shown.say("/undo")
        await shown.wait("Undoing · Esc stops that; what is not undone then stays")
        await shown.say("and then")  # not lost, and not said into the middle of it
        await shown.wait("queued: and then")
        await shown.press("escape")
        after = await shown.wait("Not all of it is undone, so the conversation keeps it")
        assert re.search(r"(?s)book: not known whether it is undone:.*Esc\)", after)
        assert re.search(r"book: not undone: The undo was stopped \(.*Esc\)", after)
        await shown.wait("1 queued: Enter sends the next · At rest: Esc has nothing to stop")


@pytest.mark.promise("P4")
async def test_an_undo_that_failed_says_so_and_once_more_takes_the_messages() -> None:
    async with pilot_chat("failing_undo") as shown:
        await shown.say("book it")
        await shown.wait(lambda text: "Booked." in text and AT_REST in text)
        await shown.say("/undo")
        await shown.wait("book: the undo failed: .*the hotel does not answer")
        await shown.wait("/undo again removes the messages")
        await shown.say("/undo")
        await shown.wait("Removed 4 messages from the conversation")


@pytest.mark.promise("P9")
async def test_sessions_of_a_store_are_listed_opened_and_gone_on_with(tmp_path: Path) -> None:
    store = resolve_store(tmp_path / "chats.db")
    async with pilot_chat("short", store=store, session="bread") as shown:
        await shown.say("how is bread made?")
        await shown.wait("Hello there.")
        await shown.wait(AT_REST)
        await shown.say("/sessions soup")
        await shown.wait("New session soup.")
        await shown.say("and soup?")
        await shown.wait("And again.")
        await shown.wait(AT_REST)
        await shown.say("/quit")
        await shown.wait_for_exit()
    async with pilot_chat("short", store=store, session="bread") as shown:
        await shown.wait(r"Session bread goes on.\s+you: how is bread made\?\s+agent: Hello there.")
        await shown.say("/sessions")
        listed = await shown.wait(r"\* bread  2 messages\s+soup  2 messages  \d{4}-\d\d-\d\d")
        assert "main" not in listed
        await shown.say("/sessions soup")
        await shown.wait(r"Back in session soup.\s+you: and soup\?")
        await shown.say("more of it")
        await shown.wait("12 in, 3 out")
        await shown.wait(AT_REST)
        await shown.say("/sessions")
        await shown.wait(r"\* soup  4 messages")
        await shown.say("/undo")
        await shown.wait("The saved conversation keeps its messages.")
    await asyncio.wrap_future(store.close())


# --- Answers with one key -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "outcome"), [("y", "a.txt is gone"), ("n", "a person said no")])
async def test_one_key_answers_an_approval(key: str, outcome: str) -> None:
    async with pilot_chat("careful") as shown:
        await shown.say("clean up")
        await shown.wait("delete: y approves, n denies")
        await shown.press(key)
        await shown.wait(lambda text: "As you wish." in text and AT_REST in text and outcome in text)


async def test_a_key_that_comes_with_the_question_and_a_key_in_a_draft_are_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("quiesce.cli.chat_widgets.time", SimpleNamespace(monotonic=lambda: now[0]))
    async with pilot_chat("careful") as shown:
        await shown.say("clean up")
        await shown.wait("delete waits for your answer")
        await shown.press("a")  # meant for the draft: the question has only just appeared
        await shown.wait(r"│ a +│")
        now[0] += 1.0
        await shown.press("y")
        await shown.wait(r"│ ay +│")
        assert "is gone" not in shown.text
        await shown.press("backspace", "backspace")
        await shown.wait("delete: y approves")


async def test_the_arguments_are_edited_and_the_tool_gets_the_edited_ones() -> None:
    async with pilot_chat("careful") as shown:
        await shown.say("clean up")
        await shown.wait("delete: y approves")
        await shown.press("e")
        editing = await shown.wait("Editing the arguments: Enter approves with these · Esc goes back")
        assert '"path": "a.txt"' in editing
        await shown.press("escape")
        await shown.wait("delete: y approves")
        await shown.press("e")
        await shown.wait("Editing the arguments")
        composer = shown.app.query_one(Composer)
        composer.text = "not json"
        await shown.press("enter")
        await shown.wait("The arguments are not a JSON object")
        composer.text = '{"path": "b.txt"}'
        await shown.press("enter")
        await shown.wait("b.txt is gone")
        assert "a.txt is gone" not in shown.text


async def test_always_approves_the_tool_in_this_conversation_and_can_be_taken_back() -> None:
    calls = [[Call("delete", {"path": f"{name}.txt"})] for name in "abc"]
    agent = Agent(ScriptedModel(calls[0], calls[1], "Two done.", calls[2], "Three done."), tools=[agents.delete])
    async with pilot_chat(agent, size=(100, 50)) as shown:
        await shown.say("clean up")
        await shown.wait("delete: y approves")
        await shown.press("a")
        after = await shown.wait(lambda text: "Two done." in text and "b.txt is gone" in text and AT_REST in text)
        assert re.search(r"Approved: delete\(path='b.txt'\)\. delete is always approved", after)
        await shown.say("/always off")
        await shown.wait("asked about again")
        await shown.say("more")
        await shown.wait("delete: y approves")
        assert "c.txt is gone" not in shown.text


# --- The draft ------------------------------------------------------------------------------------------------------


async def test_commands_and_paths_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "plan b.txt").write_text("the plan")
    monkeypatch.chdir(tmp_path)
    async with pilot_chat("short") as shown:
        await shown.type("/s")
        await shown.wait(r"/stop\s+/sessions")
        await shown.press("down", "tab")
        await shown.wait(r"│ /sessions +│")
        shown.app.query_one(Composer).text = ""
        await shown.type("read @n")
        await shown.wait("@notes/")
        await shown.press("tab")
        await shown.wait('@"notes/plan b.txt"')
        await shown.press("tab")
        await shown.wait("1 file attached")
        await shown.press("enter")
        await shown.wait(r"\+ notes/plan b.txt \(8 bytes\)")
        await shown.wait(lambda text: "Hello there." in text and AT_REST in text)


async def test_a_long_paste_is_folded_and_sent_whole() -> None:
    block = "".join(f"line {number}\x1b[2J\n" for number in range(120))
    model = ScriptedModel("Thank you.", then="Again.")
    async with pilot_chat(Agent(model)) as shown:
        await shown.paste(block)
        await shown.wait(r"│ \[pasted 120 lines\]")
        await shown.type(" what is this?")
        await shown.press("enter")
        said = await shown.wait(lambda text: "Thank you." in text and AT_REST in text)
        assert "[pasted 120 lines] what is this?" in said
        sent = model.requests[0].messages[-1]
        assert isinstance(sent, UserMessage)
        assert sent.text == f"{block} what is this?"


async def test_a_file_that_cannot_be_attached_keeps_the_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "blob").write_bytes(b"\xff\xfe\x00")
    monkeypatch.chdir(tmp_path)
    async with pilot_chat("short") as shown:
        await shown.say("look at @blob")
        after = await shown.wait("blob is neither text nor an image or a PDF")
        assert "│ look at @blob" in after
        assert "Hello there." not in after


# --- The conversation -----------------------------------------------------------------------------------------------


async def test_what_is_new_below_is_announced_and_a_sent_prompt_is_seen() -> None:
    lines = "\n\n".join(f"Paragraph {number}." for number in range(40))
    async with pilot_chat(Agent(ScriptedModel(lines, "Short.", "Last."))) as shown:
        await shown.say("much, please")
        await shown.wait(lambda text: "Paragraph 39." in text and AT_REST in text)
        await shown.press("pageup", "pageup")
        await shown.wait(lambda text: "Paragraph 39." not in text)
        assert "below" not in shown.text
        await shown.app._view.add(Note("a late outcome"))
        await shown.wait(r"2 new lines below · Ctrl-End goes there")
        await shown.press("ctrl+end")
        await shown.wait(lambda text: "a late outcome" in text and "below" not in text)
        await shown.press("pageup", "pageup")
        await shown.wait(lambda text: "a late outcome" not in text)
        await shown.say("and now?")
        await shown.wait(lambda text: "and now?" in text and "Short." in text)


@pytest.mark.promise("P4")
async def test_the_tools_of_a_sub_agent_are_inside_its_call_and_the_transcript_has_all() -> None:
    inner = Agent(ScriptedModel([Say("Looking."), Call("look", {"what": "oven"})], "The oven is fine."),
                  tools=[agents.look], name="cook")  # fmt: skip
    model = ScriptedModel([Call("cook", {"prompt": "check the oven"})], "All is \x1b[31mwell.")
    async with pilot_chat(Agent(model, tools=[inner.as_tool()])) as shown:
        await shown.say("how is it?")
        text = await shown.wait(lambda text: "well." in text and AT_REST in text and "The oven is fine." in text)
        assert re.search(r"cook\(.*\s+The oven is fine.\s+│ +✓ look\(what='oven'\)", text), text
        await shown.say("/quit")
        await shown.wait_for_exit()
    transcript = shown.app.transcript
    assert "\x1b" not in transcript
    found = re.findall(r"how is it\?|cook\(|    ✓ look\(|All is \N{REPLACEMENT CHARACTER}\[31mwell", transcript)
    assert found == ["how is it?", "cook(", "    ✓ look(", "All is \N{REPLACEMENT CHARACTER}[31mwell"]


# --- Leaving, and starts that fail ---------------------------------------------------------------------------------


@pytest.mark.promise("P1", "P4")
async def test_ctrl_q_while_an_undo_is_in_progress_stops_it_and_waits_for_its_end() -> None:
    async with pilot_chat("booking", size=(100, 40)) as shown:
        await shown.say("book them")
        await shown.wait(lambda text: "Booked." in text and AT_REST in text)
        await shown.say("/undo")
        await shown.wait("Undoing · Esc stops that; what is not undone then stays")
        await shown.press("ctrl+q")
        await shown.wait_for_exit()
    assert "Not all of it is undone" in shown.app.transcript


@pytest.mark.promise("P4")
async def test_a_queued_prompt_whose_start_fails_stays_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()

    @tool
    async def hold() -> str:
        """Wait for the test."""
        await gate.wait()
        return "held"

    agent = Agent(ScriptedModel([Call("hold")], "Done.", then="Second."), tools=[hold])
    async with pilot_chat(agent) as shown:
        await shown.say("one")
        await shown.wait("Esc stops hold")
        await shown.type("two")
        await shown.press("tab")
        await shown.wait("queued: two")
        with monkeypatch.context() as broken:
            broken.setattr(agent, "start", _refuse)
            gate.set()
            await shown.wait(lambda text: "No room now" in text and "1 queued: Enter sends the next" in text)
            await shown.press("enter")
            await shown.wait(lambda text: text.count("No room now") == 2 and "1 queued" in text)
        await shown.press("enter")
        await shown.wait(lambda text: "Second." in text and AT_REST in text)


def _refuse(*_: object, **__: object) -> None:
    raise QuiesceError("No room now.")
