"""The texts of a chat: the hint about the stop key, the progress of tools, the replies to commands."""

from __future__ import annotations

import time
from typing import Any, Final, cast

import msgspec

from ..cancellation import Mode
from ..errors import ConfigurationError, QuiesceError
from ..interrupts import Approve, Deny, Interrupt
from ..phases import Phase
from ..receipt import LateOutcome, Undone, UndoReceipt
from .chat_controller import ChatController, RunningTool
from .json_lines import escaped
from .question_text import question_text
from .run_answers import WIDEST
from .sanitize import call_line, clean, one_line

COMMANDS: Final = (
    ("/ps", "", "what is running, and abandoned tools"),
    ("/stop", "[MODE]", "stop the run: after_turn, after_tools, now or kill"),
    ("/stop", "TOOL", "stop one tool and let the run go on"),
    ("/approve", "", "approve the tool call that is waiting"),
    ("/edit", "JSON", "approve it with other arguments"),
    ("/always", "[off]", "approve it, and every call of that tool in this conversation"),
    ("/deny", "[WHY]", "deny it; the model gets the reason"),
    ("/answer", "TEXT", "answer the question of a tool"),
    ("/undo", "", "undo the last prompt and what its tools did"),
    ("/usage", "", "tokens and cost"),
    ("/trace", "", "the last run as a tree: model calls, tools, sub-agents"),
    ("/sessions", "[NAME]", "list conversations, or switch to one"),
    ("/help", "", "this"),
    ("/quit", "", "leave"),
)
COMMAND_NAMES: Final = tuple(dict.fromkeys(name for name, _, _ in COMMANDS))

HELP: Final = "\n".join(
    [
        *(f"{f'{name} {what}':<17}{about}" for name, what, about in COMMANDS),
        "@path            attach a file: text, image or PDF",
    ]
)

WELCOME: Final = "Write something. While the agent works, Esc stops it. /help lists the commands."

_CUTS: Final = {
    Phase.CALLING: "the request",
    Phase.STREAMING: "the answer; the text so far stays",
    Phase.BACKING_OFF: "the wait before the next try",
}

UNDO_TEXT: Final = {
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
    "steered": "Sent in another run",
    "limit": "Stopped at a limit",
}


# --- The hint line --------------------------------------------------------------------------------------------------


def hint(controller: ChatController, stop_key: str = "Esc") -> str:
    """One line: what is running, and what the stop key does now."""
    if controller.undoing is not None:
        more = "Esc can do no more" if controller.undoing.cancelled else "Esc stops that; what is not undone then stays"
        return f"Undoing · {more.replace('Esc', stop_key)}"
    if controller.starting:
        return f"Starting · {stop_key} stops the run" if controller.stop_mode is None else "Stopping at the start"
    if controller.run is None and controller.pending_questions:
        return (
            f"{clean(controller.pending_questions[0].tool_name)} waits for your answer · {stop_key} has nothing to stop"
        )
    if controller.run is None:
        waiting = f"{len(controller.queue)} queued: Enter sends the next · " if controller.queue else ""
        left = clean(", ".join(dict.fromkeys(name for names in controller.abandoned.values() for name in names)))
        status = f"At rest, but {left} may still be running · " if left else "At rest: "
        return f"{waiting}{status}{stop_key} has nothing to stop"
    if controller.stop_mode is not None:
        return f"{_stopping(controller)} · {_again(controller, stop_key)}"
    if controller.steering_since is not None:
        names = ", ".join(dict.fromkeys(clean(tool.name) for tool in controller.tools.values()))
        waiting = (
            f"waiting for {names}, {time.monotonic() - controller.steering_since:.0f} s" if names else "in a moment"
        )
        return f"Steering: {waiting} · {stop_key} stops the run"
    return f"{stop_key} {_would_stop(controller)}"


def _stopping(controller: ChatController) -> str:
    names = ", ".join(dict.fromkeys(tool.name for tool in controller.tools.values()))
    waiting = f"waiting for {names}, {time.monotonic() - controller.stop_requested_at:.0f} s" if names else "settling"
    return f"{'Stopping by force' if controller.stop_mode is Mode.KILL else 'Stopping'}: {clean(waiting)}"


def _again(controller: ChatController, stop_key: str) -> str:
    match controller.next_mode:
        case Mode.NOW:
            return f"{stop_key} stops what is still running"
        case Mode.KILL:
            return f"{stop_key} again forces it: no more grace"
        case _:
            return f"{stop_key} can do no more"


def _would_stop(controller: ChatController) -> str:
    assert controller.run is not None
    if controller.tools:
        return f"stops {'; '.join(dict.fromkeys(_tool_stop(tool) for tool in controller.tools.values()))}"
    return f"stops {_CUTS.get(controller.run.phase, 'the run')}"


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
    """A progress bar."""
    full = round(part * width)
    return f"{'━' * full}{'╌' * (width - full)} {part:4.0%}"


def progress_text(progress: Any) -> str:
    """The progress that a tool reported, as a bar or as text."""
    if progress is None:
        return ""
    part = fraction(progress)
    if part is None:
        return one_line(str(progress), 60)
    message = progress.get("message") if isinstance(progress, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return bar(part) if message is None else f"{bar(part)}  {one_line(str(message), 40)}"  # pyright: ignore[reportUnknownArgumentType]


# --- Commands -------------------------------------------------------------------------------------------------------


async def answer_command(controller: ChatController, line: str) -> str | None:
    """Run a command line that begins with a slash; returns its reply, or None when the user wants to leave."""
    try:
        return await _run_line(controller, line)
    except QuiesceError as error:  # a store that cannot be read, or an invalid name
        return f"! {clean(str(error))}"


async def _run_line(controller: ChatController, line: str) -> str | None:
    name, _, argument = line[1:].strip().partition(" ")
    argument = argument.strip()
    match name:
        case "ps":
            return _ps(controller)
        case "stop":
            return _stop(controller, argument)
        case "approve" | "deny" | "answer" | "edit":
            return _answer(controller, name, argument)
        case "always":
            return _always(controller, argument)
        case "undo":
            return await _undo(controller)
        case "usage":
            return await _usage(controller)
        case "trace":
            return "\n".join(controller.trace.lines) or "Nothing has run yet."
        case "sessions" | "session":
            return await _sessions(controller, argument)
        case "help" | "?" | "":
            return HELP
        case "quit" | "exit" | "q":
            return None
        case _:
            return (
                f"There is no command /{clean(name)}; /help lists them. To send it to the agent, put a space before it."
            )


def _ps(controller: ChatController) -> str:
    lines: list[str] = []
    if controller.run is not None:
        lines.append(f"run {controller.run.id}  {'stopping' if controller.stop_mode else controller.run.phase.value}")
        for tool in controller.tools.values():
            took = time.monotonic() - tool.since
            lines.append(f"  {clean(tool.name)}  {took:.1f} s  {progress_text(tool.progress)}".rstrip())
    lines += [f"run {run_id} abandoned: {clean(', '.join(names))}" for run_id, names in controller.abandoned.items()]
    lines += [f"queued: {one_line(prompt.shown, 70)}" for prompt in controller.queue]
    return "\n".join(lines) or "Nothing is running."


def _stop(controller: ChatController, what: str) -> str:
    if controller.undoing is not None:
        return (
            "The undo is being stopped."
            if controller.stop("/stop")
            else "It is already being stopped as urgently as possible."
        )
    if controller.run is None:
        return "Nothing is running."
    if what and what not in list(Mode):
        stopped = [tool.name for tool in controller.tools.values() if what in (tool.name, tool.call_id)]
        for tool in list(controller.tools.values()):
            if what in (tool.name, tool.call_id):
                controller.run.cancel_tool(tool.call_id, "the user stopped it")
        return f"Stopping {clean(stopped[0])}; the run goes on." if stopped else f"No tool {clean(what)!r} is running."
    mode = controller.stop("/stop", Mode(what) if what else None)
    return "It is already being stopped as urgently as possible." if mode is None else f"Stop requested, mode {mode}."


_LIMIT_CHOICES: Final = "/approve allows as much again, /answer with a number allows so much more, /deny ends the run."


def question(controller: ChatController) -> str:
    """The text of the first pending question."""
    first = controller.pending_questions[0]
    if first.kind == "limit":
        return f"{clean(_limit_message(first))}. {_LIMIT_CHOICES}"
    call = call_line(first.tool_name, first.arguments, WIDEST)
    reason = f"\n{clean(question_text(first.reason))}" if first.reason is not None else ""
    if first.kind == "approval":
        preview = f"\n{clean(first.preview)}" if first.preview else ""
        return f"{call} needs your approval: y, n, e to edit, a for always, or /deny with a reason.{reason}{preview}"
    return f"{call} asks: /answer it, or /deny.{reason}"


def _answer(controller: ChatController, how: str, text: str) -> str:
    if not controller.pending_questions:
        return "There is no pending question."
    first = controller.pending_questions[0]
    if (how == "edit" and first.kind != "approval") or (how == "answer" and (first.kind == "approval" or not text)):
        return question(controller)
    if how == "approve" and first.kind == "question":
        return question(controller)
    if how == "answer" and first.kind == "limit" and not _is_amount(text):
        return question(controller)
    given = {"deny": Deny(text), "approve": Approve()}.get(how, text)
    controller.answer(edited_arguments(text) if how == "edit" else given)
    word = {"deny": "Denied", "approve": "Approved", "answer": "Answered", "edit": "Approved with other arguments"}[how]
    about = _limit_message(first) if first.kind == "limit" else call_line(first.tool_name, first.arguments)
    reply = f"{word}: {clean(about)}." + (" This is sent when the run is at rest." if controller.run else "")
    return f"{reply}\n{question(controller)}" if controller.pending_questions else reply


def _always(controller: ChatController, what: str) -> str:
    if what == "off":
        controller.always.clear()
        return "Every call that needs approval is asked about again."
    approved = controller.approve_always() if not what else None
    if approved is not None:
        return always_line(approved) + (f"\n{question(controller)}" if controller.pending_questions else "")
    names = clean(", ".join(sorted(controller.always)))
    return f"Always approved: {names}. /always off ends that." if names else "Nothing is always approved."


def always_line(approved: Interrupt) -> str:
    """The line that confirms an approval for this call and all later calls of its tool in this conversation."""
    call = call_line(approved.tool_name, approved.arguments)
    return (
        f"Approved: {call}. {clean(approved.tool_name)} is always approved in this conversation; /always off ends that."
    )


def edited_arguments(text: str) -> Approve:
    """The approval of a call with other arguments, from JSON. Raises `ConfigurationError`."""
    try:
        return Approve(msgspec.json.decode(text, type=dict[str, Any]))
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"The arguments are not a JSON object: {error}.") from None


def shown_arguments(first: Interrupt) -> str:
    """The arguments of a call, to edit."""
    written = msgspec.json.format(msgspec.json.encode(first.arguments), indent=2).decode()
    return escaped(written)


def _limit_message(interrupt: Interrupt) -> str:
    return str(cast("dict[str, Any]", interrupt.reason)["message"])


def _is_amount(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False


async def _undo(controller: ChatController) -> str:
    if controller.is_running:
        return "A run is going on: stop it first." if controller.undoing is None else "That is being undone already."
    undone = await controller.undo()
    if undone is None:
        return "There is nothing to undo."
    lines = [_undone_line(each) for each in undone.outcomes]
    lines += [f"{clean(name)}: has no undo, what it did stays done" for name in undone.left]
    if undone.messages:
        lines.append(f"Removed {undone.messages} message{'' if undone.messages == 1 else 's'} from the conversation.")
    elif any(each.outcome is not Undone.UNDONE for each in undone.outcomes):
        lines.append("Not all of it is undone, so the conversation keeps it. /undo again removes the messages.")
    elif controller.backend.is_saved:
        lines.append("The saved conversation keeps its messages.")
    return "\n".join(lines) or "There is nothing to undo."


def _undone_line(each: UndoReceipt) -> str:
    why = f": {one_line(each.detail, 120)}" if each.detail else ""
    return f"{clean(each.name)}: {UNDO_TEXT[each.outcome]}{why}"


def late_line(late: LateOutcome) -> str:
    """The line about the late outcome of an abandoned tool call."""
    detail = f": {one_line(late.detail, 100)}" if late.detail else ""
    word = "has finished after all" if late.ok else "has failed"
    return f"{clean(late.name)}, which was abandoned, {word}, {late.after:.1f} s after the end{detail}"


async def _usage(controller: ChatController) -> str:
    parts = [await controller.backend.usage()]
    if controller.run is not None:
        parts.append(f"and in the run that is going on:\n{controller.run.usage}")
    return clean("\n".join(parts))


async def begin(controller: ChatController) -> str:
    """Open the conversation; returns the text to greet with, empty for a new one.

    A run that is going on in it becomes the run of the chat.
    """
    backend = controller.backend
    try:
        run = await backend.begin()
    except QuiesceError as error:
        return f"! {clean(str(error))}"
    if run is not None:
        controller.follow(run)
    last = backend.last_messages()
    lines = [f"Session {clean(backend.session)} goes on.", last] if last or run is not None else []
    if run is not None:
        lines.append(f"Its run {run.id} is going on.")
    elif controller.pending_questions:
        lines.append(question(controller))
    return "\n".join(filter(None, lines))


async def _sessions(controller: ChatController, name: str) -> str:
    backend = controller.backend
    if not name:
        return clean("\n".join(await backend.session_lines()))
    if controller.is_running:
        return "A run is going on: stop it, or wait for it, before going to another session."
    name = one_line(name, 100)
    if await controller.switch(name):
        return f"New session {name}."
    last = backend.last_messages()
    asked = f"\n{question(controller)}" if controller.pending_questions else ""
    return f"Back in session {name}." + (f"\n{last}" if last else "") + asked
