"""`quiesce run "prompt"`: one prompt, for scripts; with a session, a conversation over several commands.

The answer goes to standard output, as text or as one JSON event per line; the receipt goes to standard error. SIGINT,
SIGTERM and a reader that closes the pipe are stops: the model is cut, running tools finish, the answer so far is kept.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final

import msgspec

from .._threads.background_loop import portal
from ..agent import AnyAgent
from ..cancellation import CancellationToken, Mode, ModeName, Source, stop_on_signals
from ..errors import ConfigurationError, SessionNotFound
from ..events import Event, RunEnded, TextDelta, ToolEnded, ToolStarted, TurnStarted
from ..interrupts import Answers, Interrupt
from ..run.handle import Run, wait_blocking
from ..run.options import RunOptions
from ..sessions import Session
from . import run_answers
from .agent_options import add_options, chosen_agent, take_agent
from .json_lines import add_option, escaped
from .main import Subparsers
from .pipe_watch import watch_pipe
from .sanitize import call_line, clean, result_line

FINISHED: Final = 0
FAILED: Final = 1
BAD_USAGE: Final = 2
CANCELLED: Final = 3
WAITING: Final = 4
PIPE_CLOSED: Final = 128 + 13

# How an agent is named; a word of a prompt that was not quoted is not like it.
_TARGET: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")

_CODES: Final = f"""\
exit codes:
  {FINISHED}    the run finished
  {FAILED}    it failed, or its output could not be written
  {BAD_USAGE}    the command is not valid; nothing was started
  {CANCELLED}    it was stopped: by --timeout, a limit, a tool or a hook
  {WAITING}    it waits for an approval or an answer; with --session, a later command can give it
  130  it was stopped by SIGINT (Ctrl-C); 143: by SIGTERM
  {PIPE_CLOSED}  it was stopped because the reader of its output closed the pipe
"""


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser(
        "run", help="run one prompt, for scripts", epilog=_CODES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="PROMPT",
        help="the prompt; MODULE:AGENT may stand before it, instead of --agent; '-' or nothing reads the prompt from "
        "standard input",
    )
    add_options(parser)
    parser.add_argument("--session", metavar="NAME", help="keep the conversation under this name, and go on with it")
    parser.add_argument("--store", metavar="PATH|URL", help="where sessions are kept (default: your own SQLite file)")
    run_answers.add_options(parser)
    add_option(parser, "the events")
    parser.add_argument("--timeout", type=float, metavar="S", help="stop the run after S seconds")
    parser.add_argument("-q", "--quiet", action="store_true", help="no receipt on standard error")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the prompt; the exit code tells how the run ended."""
    try:
        _take_words(options)
        run_answers.check_terminal(options)
        return _run_all(chosen_agent(options), _session(options), options)
    except ConfigurationError as error:
        print(f"quiesce: {error}", file=sys.stderr)
        return BAD_USAGE
    except KeyboardInterrupt:  # before anything was started, or the fourth Ctrl-C
        return 128 + signal.SIGINT


def _take_words(options: argparse.Namespace) -> None:
    """Find the prompt among the words, and the agent if it stands before it. Raises `ConfigurationError`."""
    words: list[str] = options.words
    options.prompt = words[-1] if words else None
    match words[:-1]:
        case []:
            pass
        case [agent] if _TARGET.fullmatch(agent):
            take_agent(options, agent)
        case _:
            raise ConfigurationError(
                f"The prompt is {len(words)} words to the shell.",
                todo='Use quotes, and name the agent with --agent: quiesce run --agent MODULE:AGENT "prompt".',
            )


def _session(options: argparse.Namespace) -> Session | None:
    if options.session is None:
        if options.store is not None:
            raise ConfigurationError("--store needs a session.", todo="Add --session NAME.")
        return None
    return Session(options.session, options.store)


def _run_all(agent: AnyAgent, session: Session | None, options: argparse.Namespace) -> int:
    """Run the prompt, or the answers to what the session waits for, and go on as long as there are answers."""
    where: RunOptions[Any] = {} if session is None else {"session": session}
    if options.prompt is None and session is not None and run_answers.has_answers(options):
        given: str | Answers = _answers_to_stored(session, options)
    else:
        given = _prompt(options.prompt)
    how: RunOptions[Any] = where if options.timeout is None else {**where, "timeout": options.timeout}
    while True:
        code, asked = _run(agent, given, how, options)
        answers = run_answers.answers_to(asked, options) if code == WAITING else {}
        if not answers:
            if code == WAITING and not options.quiet:
                print(run_answers.how_to_answer(asked, options.session), file=sys.stderr)
            return code
        given, how = answers, where  # the task goes on, with what is left of its time


def _answers_to_stored(session: Session, options: argparse.Namespace) -> Answers:
    with suppress(SessionNotFound):
        session.load_sync()
    answers = run_answers.answers_to(session.interrupts, options)
    if not answers:
        raise ConfigurationError(
            f"Session {session.name!r} waits for no approval.",
            todo='Use a prompt: quiesce run --session NAME "prompt".',
        )
    return answers


def _run(
    agent: AnyAgent, given: str | Answers, how: RunOptions[Any], options: argparse.Namespace
) -> tuple[int, tuple[Interrupt, ...]]:
    """One run: the exit code that tells how it ended, and what it asks a person."""
    target = _Target(quiet=options.quiet)
    with stop_on_signals(target) as signals:
        running, events = _start(agent, given, {**how, "token": target.token})
        target.run = running
        out = _Output(running, as_json=options.json)
        with watch_pipe(sys.stdout.fileno(), out.reader_left):
            end = _follow(events, out)
        result = wait_blocking(running)
        if not options.quiet:  # in here, so that another Ctrl-C does not suppress the receipt
            print(clean(str(result.receipt)), file=sys.stderr)
        if end.stop_reason == "error":
            print(f"quiesce: {clean(end.error or 'The run failed.')}", file=sys.stderr)
    if out.failure:
        print(f"quiesce: {out.failure}", file=sys.stderr)
        return FAILED, ()
    return _exit_code(end, signals.received), result.interrupts


# Printed at once after Ctrl-C: what happens now, and what the next Ctrl-C does.
_CTRL_C_TEXT: Final = {
    Mode.AFTER_TOOLS: "Stopping. The model is cut; a tool that runs may finish. Ctrl-C again stops it too.",
    Mode.NOW: "Stopping now. Each tool gets its grace. Ctrl-C again kills it.",
    Mode.KILL: "Killing what still runs.",
}


class _Target:
    """The target of signals: the run, or its parent token before the run exists."""

    def __init__(self, *, quiet: bool) -> None:
        self.token: Final = CancellationToken()
        self.run: Run | None = None
        # Not to a pipe: without a reader, writing to it would block the signal handler.
        self._prints: Final = not quiet and sys.stderr.isatty()

    def cancel(self, reason: str = "", *, mode: ModeName | Mode = Mode.NOW, source: Source = "user") -> bool:
        target = self.token if self.run is None else self.run
        changed = target.cancel(reason, mode=mode, source=source)
        if self._prints and (self.run is None or not self.run.done):
            # print() is not for signal handlers.
            os.write(sys.stderr.fileno(), f"\r\n{_CTRL_C_TEXT[Mode(mode)]}\r\n".encode())
        return changed


def _prompt(given: str | None) -> str:
    if given is not None and given != "-":
        return given
    if given is None and sys.stdin.isatty():
        raise ConfigurationError("There is no prompt.", todo='Use: quiesce run "prompt", or pipe one in.')
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise ConfigurationError(f"The prompt on standard input is not text in {sys.stdin.encoding}.") from None


def _start(agent: AnyAgent, given: str | Answers, how: RunOptions[Any]) -> tuple[Run, SimpleQueue[Event]]:
    """Start the run in its own thread: a reader that does not read must not delay a stop."""
    events: SimpleQueue[Event] = SimpleQueue()

    def begin() -> Run:
        run = agent.start(given, **how) if isinstance(given, str) else agent.start_answer(given, **how)
        run.tap(events.put)
        return run

    return portal().call(begin), events


def _follow(events: SimpleQueue[Event], out: _Output) -> RunEnded:
    while True:
        event = events.get()
        out.show(event)
        if isinstance(event, RunEnded):
            out.end_line()
            return event


class _Output:
    """Writes to standard output until its reader closes it; on a terminal, tools are shown on standard error."""

    def __init__(self, run: Run, *, as_json: bool) -> None:
        self._run: Final = run
        self._as_json: Final = as_json
        self._is_terminal: Final = sys.stdout.isatty()
        self._shows_tools: Final = sys.stderr.isatty() and not as_json
        self.failure = ""
        self._is_open = True
        self._line_is_open = False

    def show(self, event: Event) -> None:
        if self._as_json:
            self._write(escaped(msgspec.json.encode(event).decode()) + "\n")
            return
        match event:
            case TextDelta(text):
                self._write(clean(text) if self._is_terminal else text)
                self._line_is_open = not text.endswith("\n")
            case TurnStarted():
                self.end_line()
            case ToolStarted(call) if self._shows_tools:
                self._note(f"> {call_line(call.name, call.arguments)}")
            case ToolEnded(result) if self._shows_tools:
                self._note(result_line(result))
            case _:
                pass

    def reader_left(self) -> None:
        """Stop the run, as gently as the first signal does: the output has no reader."""
        why = self.failure or "The reader closed the pipe"
        self._run.cancel(why, mode=Mode.AFTER_TOOLS, source="disconnect")

    def _note(self, line: str) -> None:
        self.end_line()
        print(line, file=sys.stderr)

    def end_line(self) -> None:
        """Complete the last line."""
        if self._line_is_open:
            self._line_is_open = False
            self._write("\n")

    def _write(self, text: str) -> None:
        if not self._is_open:
            return
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            self._is_open = False
            # What is still in the buffer is written again when the process ends; it must find a reader then.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
            if not isinstance(error, BrokenPipeError):  # a full disk, for one
                self.failure = f"The output could not be written: {error.strerror}."
            self.reader_left()


def _exit_code(end: RunEnded, signals: list[signal.Signals]) -> int:
    match end.stop_reason:
        case "error":
            return FAILED
        case "interrupt":
            return WAITING
        case "cancelled" | "limit":
            cause = end.receipt.cause
            source = None if cause is None else (cause.origin or cause).source
            if source == "signal" and signals:
                return 128 + signals[0]
            return PIPE_CLOSED if source == "disconnect" else CANCELLED
        case _:
            return FINISHED
