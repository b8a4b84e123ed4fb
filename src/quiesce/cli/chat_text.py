"""The sentences of a chat: what Esc will do now, how far a tool is, what the commands answer."""

from __future__ import annotations

import time
from typing import Any, Final

from ..cancellation import Mode
from ..errors import QuiesceError
from ..interrupts import Approve, Deny
from ..phases import Phase
from ..receipt import LateOutcome, Undone, UndoReceipt
from .chat_controller import ChatController, RunningTool
from .sanitize import call_line, clean, one_line

HELP: Final = """\
/ps              what is running now, and what was left behind
/stop [MODE]     stop the run: after_turn, after_tools, now or kill
/stop TOOL       stop one tool and let the run go on
/approve         let a tool that needs your approval do it
/deny [WHY]      do not; the model is told why
/answer TEXT     answer what a tool asks
/undo            take back the last prompt, and what its tools did
/usage           tokens and cost
/sessions [NAME] list conversations, or go to one, old or new
/help            this
/quit            leave"""

WELCOME: Final = "Write something. While the agent works, Esc stops it. /help lists the commands."

_CUTS: Final = {
    Phase.CALLING: "the request",
    Phase.STREAMING: "the answer; what was said stays",
    Phase.BACKING_OFF: "the wait before the next try",
}


UNDONE_WORDS: Final = {
    Undone.UNDONE: "undone",
    Undone.FAILED: "the undo failed",
    Undone.NOT_UNDONE: "not undone",
    Undone.UNKNOWN: "not known whether it is undone",
}


ENDINGS: Final = {
    "end_turn": "Finished",
    "stop_sequence": "Finished",
    "max_tokens": "Cut at its length limit",
    "refusal": "Refused",
    "pause": "Paused by the provider",
    "interrupt": "Waiting for you",
    "steered": "Said in another run",
    "limit": "Stopped at a limit",
}


# --- The hint line --------------------------------------------------------------------------------------------------


def hint(talk: ChatController, stop_key: str = "Esc") -> str:
    """One line that says what is going on and what the stop key will do now."""
    if talk.undoing is not None:
        more = "Esc can do no more" if talk.undoing.cancelled else "Esc stops that; what is not undone then stays"
        return f"Undoing · {more.replace('Esc', stop_key)}"
    if talk.run is None and talk.asking:
        return f"{clean(talk.asking[0].tool_name)} waits for your answer · {stop_key} has nothing to stop"
    if talk.run is None:
        waiting = f"{len(talk.queue)} queued: Enter sends the next · " if talk.queue else ""
        left = clean(", ".join(dict.fromkeys(name for names in talk.left_behind.values() for name in names)))
        rest = f"At rest, but {left} may still be running · " if left else "At rest: "
        return f"{waiting}{rest}{stop_key} has nothing to stop"
    if talk.asked is not None:
        return f"{_stopping(talk)} · {_again(talk, stop_key)}"
    if talk.steering_since is not None:
        names = ", ".join(dict.fromkeys(clean(tool.name) for tool in talk.tools.values()))
        waiting = f"waiting for {names}, {time.monotonic() - talk.steering_since:.0f} s" if names else "in a moment"
        return f"Steering: {waiting} · {stop_key} stops the run"
    return f"{stop_key} {_would_stop(talk)}"


def _stopping(talk: ChatController) -> str:
    names = ", ".join(dict.fromkeys(tool.name for tool in talk.tools.values()))
    waiting = f"waiting for {names}, {time.monotonic() - talk.asked_at:.0f} s" if names else "settling"
    return f"{'Stopping by force' if talk.asked is Mode.KILL else 'Stopping'}: {clean(waiting)}"


def _again(talk: ChatController, stop_key: str) -> str:
    match talk.next_mode:
        case Mode.NOW:
            return f"{stop_key} stops what is still running"
        case Mode.KILL:
            return f"{stop_key} again forces it: no more grace"
        case _:
            return f"{stop_key} can do no more"


def _would_stop(talk: ChatController) -> str:
    assert talk.run is not None
    if talk.tools:
        return f"stops {'; '.join(dict.fromkeys(_tool_stop(tool) for tool in talk.tools.values()))}"
    return f"stops {_CUTS.get(talk.run.phase, 'the run')}"


def _tool_stop(tool: RunningTool) -> str:
    name = clean(tool.name)
    if tool.policy is None:
        return name
    grace = f"{tool.policy.grace:g} s"
    match tool.policy.on_stop:
        case "finish":
            return f"after {name} has finished (at most {grace})"
        case "abandon":
            return f"waiting for {name} after {grace} (it may go on)"
        case "kill":
            return f"{name} (killed after {grace})"
        case _:
            return f"{name} (it has {grace} to end)"


# --- Tools ----------------------------------------------------------------------------------------------------------


def fraction(progress: Any) -> float | None:
    """How much is done, from 0 to 1, when a tool reports it: a number up to 1, or some `done` of a `total`."""
    match progress:
        case bool():
            return None
        case int() | float():
            return float(progress) if 0 <= progress <= 1 else None
        case {"total": int() | float() as total} if total > 0:
            done = next((progress[name] for name in ("done", "progress", "current") if name in progress), None)
            return min(1.0, max(0.0, done / total)) if isinstance(done, int | float) else None
        case _:
            return None


def bar(part: float, width: int = 16) -> str:
    """A bar that is so full."""
    full = round(part * width)
    return f"{'━' * full}{'╌' * (width - full)} {part:4.0%}"


def progress_words(progress: Any) -> str:
    """What a tool reported, as a bar or in its own words."""
    if progress is None:
        return ""
    part = fraction(progress)
    if part is None:
        return one_line(str(progress), 60)
    message = progress.get("message") if isinstance(progress, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return bar(part) if message is None else f"{bar(part)}  {one_line(str(message), 40)}"  # pyright: ignore[reportUnknownArgumentType]


# --- Commands -------------------------------------------------------------------------------------------------------


async def answer_command(talk: ChatController, line: str) -> str | None:
    """What a line that begins with a slash does and says; None means that the person wants to leave."""
    try:
        return await _obey(talk, line)
    except QuiesceError as error:  # a store that cannot be read, a name that cannot be had
        return f"! {clean(str(error))}"


async def _obey(talk: ChatController, line: str) -> str | None:
    name, _, rest = line[1:].strip().partition(" ")
    rest = rest.strip()
    match name:
        case "ps":
            return _ps(talk)
        case "stop":
            return _stop(talk, rest)
        case "approve" | "deny" | "answer":
            return _answer(talk, name, rest)
        case "undo":
            return await _undo(talk)
        case "usage":
            return _usage(talk)
        case "sessions" | "session":
            return await _sessions(talk, rest)
        case "help" | "?" | "":
            return HELP
        case "quit" | "exit" | "q":
            return None
        case _:
            return (
                f"There is no command /{clean(name)}; /help lists them. To say it to the agent, put a space before it."
            )


def _ps(talk: ChatController) -> str:
    lines: list[str] = []
    if talk.run is not None:
        lines.append(f"run {talk.run.id}  {'stopping' if talk.asked else talk.run.phase.value}")
        for tool in talk.tools.values():
            took = time.monotonic() - tool.since
            lines.append(f"  {clean(tool.name)}  {took:.1f} s  {progress_words(tool.progress)}".rstrip())
    lines += [f"run {run_id} left behind: {clean(', '.join(names))}" for run_id, names in talk.left_behind.items()]
    lines += [f"queued: {one_line(prompt, 70)}" for prompt in talk.queue]
    return "\n".join(lines) or "Nothing is running."


def _stop(talk: ChatController, what: str) -> str:
    if talk.undoing is not None:
        return "The undo is being stopped." if talk.stop("/stop") else "There is nothing more to ask for."
    if talk.run is None:
        return "Nothing is running."
    if what and what not in list(Mode):
        stopped = [tool.name for tool in talk.tools.values() if what in (tool.name, tool.call_id)]
        for tool in list(talk.tools.values()):
            if what in (tool.name, tool.call_id):
                talk.run.cancel_tool(tool.call_id, "The person stopped it")
        return f"Stopping {clean(stopped[0])}; the run goes on." if stopped else f"No tool {clean(what)!r} is running."
    mode = talk.stop("/stop", Mode(what) if what else None)
    return "There is nothing more to ask for." if mode is None else f"Stop asked for, mode {mode}."


def question(talk: ChatController) -> str:
    """What the person is asked first."""
    first = talk.asking[0]
    call = call_line(first.tool_name, first.arguments)
    reason = f"\n{clean(str(first.reason))}" if first.reason is not None else ""
    if first.kind == "approval":
        return f"{call} needs your approval: /approve, or /deny with a reason.{reason}"
    return f"{call} asks: /answer it, or /deny.{reason}"


def _answer(talk: ChatController, how: str, words: str) -> str:
    if not talk.asking:
        return "Nothing is asked."
    first = talk.asking[0]
    if how == "answer" and (first.kind == "approval" or not words):
        return question(talk)
    if how == "approve" and first.kind != "approval":
        return question(talk)
    talk.answer(Deny(words) if how == "deny" else Approve() if how == "approve" else words)
    word = {"deny": "Denied", "approve": "Approved", "answer": "Answered"}[how]
    said = f"{word}: {call_line(first.tool_name, first.arguments)}."
    return f"{said}\n{question(talk)}" if talk.asking else said


async def _undo(talk: ChatController) -> str:
    if talk.is_running:
        return "A run is going on: stop it first." if talk.undoing is None else "That is being undone already."
    undone = await talk.undo()
    if undone is None:
        return "There is nothing to take back."
    lines = [_undone_line(each) for each in undone.outcomes]
    lines += [f"{clean(name)}: has no undo, what it did stays done" for name in undone.left]
    if undone.messages:
        lines.append(f"Took {undone.messages} message{'' if undone.messages == 1 else 's'} out of the conversation.")
    elif any(each.outcome is not Undone.UNDONE for each in undone.outcomes):
        lines.append("Not all of it is undone, so the conversation keeps it. /undo again takes the messages out.")
    elif talk.session.is_saved:
        lines.append("The saved conversation keeps what was said.")
    return "\n".join(lines) or "There is nothing to take back."


def _undone_line(each: UndoReceipt) -> str:
    why = f": {one_line(each.detail, 120)}" if each.detail else ""
    return f"{clean(each.name)}: {UNDONE_WORDS[each.outcome]}{why}"


def late_line(late: LateOutcome) -> str:
    """What a tool that was left behind came to."""
    said = f": {one_line(late.detail, 100)}" if late.detail else ""
    word = "has finished after all" if late.ok else "has failed"
    return f"{clean(late.name)}, which was left behind, {word}, {late.after:.1f} s after the end{said}"


def _usage(talk: ChatController) -> str:
    parts = [str(talk.agent.usage)]
    if talk.run is not None:
        parts.append(f"and in the run that is going on:\n{talk.run.usage}")
    return "\n".join(parts)


async def begin(talk: ChatController) -> str:
    """Read the conversation that is gone on with; what there is to say about it."""
    try:
        await talk.sessions.load()
    except QuiesceError as error:
        return f"! {clean(str(error))}"
    last = talk.sessions.last_words()
    return f"Session {clean(talk.sessions.name)} goes on.\n{last}" if last else ""


async def _sessions(talk: ChatController, name: str) -> str:
    if not name:
        return clean("\n".join(await talk.sessions.lines()))
    if talk.is_running:
        return "A run is going on: stop it, or wait for it, before going to another session."
    name = one_line(name, 100)
    if await talk.switch(name):
        return f"New session {name}."
    last = talk.sessions.last_words()
    return f"Back in session {name}." + (f"\n{last}" if last else "")
