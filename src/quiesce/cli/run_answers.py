"""Answers to what a run asks a person: by an option for all approvals, or one by one on the terminal."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

import msgspec

from ..errors import ConfigurationError
from ..interrupts import Approve, Deny, Interrupt
from .question_text import question_text
from .sanitize import call_line, clean

# An approval shows what it is for: the arguments are cut only where they would flood the terminal.
WIDEST: Final = 4000


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options `--approve`, `--deny` and `--ask`."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--approve", action="store_true", help="approve every tool call that needs it")
    how.add_argument("--deny", action="store_true", help="deny every tool call that needs approval")
    how.add_argument("--ask", action="store_true", help="ask on the terminal: approvals, questions and limits")


def has_answers(options: argparse.Namespace) -> bool:
    """Whether the command says how to answer."""
    return bool(options.approve or options.deny or options.ask)


def answers_to(interrupts: tuple[Interrupt, ...], options: argparse.Namespace) -> dict[str, object]:
    """The answers by id. Without `--ask` only approvals have one; the rest waits."""
    if options.ask:
        return {each.id: _ask(each) for each in interrupts}
    if not (options.approve or options.deny):
        return {}
    return {each.id: bool(options.approve) for each in interrupts if each.kind == "approval"}


def check_terminal(options: argparse.Namespace) -> None:
    """Raises `ConfigurationError` for `--ask` without a terminal."""
    if options.ask and not sys.stdin.isatty():
        raise ConfigurationError("--ask needs a terminal to ask on.", todo="Use --approve or --deny in scripts.")


def how_to_answer(interrupts: tuple[Interrupt, ...], session: str | None) -> str:
    """What the run waits for, and what to do about it."""
    lines = [f"It waits for a person: {waiting_for(each)}" for each in interrupts]
    if session is None:
        lines.append("It was not kept. Use --session NAME to answer later, or --approve, --deny or --ask.")
    else:
        lines.append(f"To go on: the same command with --session {session}; --approve, --deny or --ask, and no prompt.")
    return clean("\n".join(lines))


def waiting_for(asked: Interrupt) -> str:
    """What an interrupt asks, in a sentence."""
    match asked.kind:
        case "approval":
            return f"{call_line(asked.tool_name, asked.arguments, WIDEST)} needs approval."
        case "limit":
            return str(asked.reason["message"])
        case "question":
            return f"{asked.tool_name} asks: {question_text(asked.reason)}"


def sent_answer(answer: object) -> object:
    """An answer as a server takes it."""
    match answer:
        case Approve(arguments):
            return {"type": "approve", "arguments": arguments}
        case Deny(reason):
            return {"type": "deny", "reason": reason}
        case _:
            return answer


def _ask(asked: Interrupt) -> object:
    """Ask on the terminal. Ctrl-C and the end of the input leave the question open."""
    print(clean(f"\n{waiting_for(asked)}"), file=sys.stderr)
    if asked.preview:
        print(clean(asked.preview), file=sys.stderr)
    if asked.kind == "question":
        return _line("Answer: ")
    choices = "y, n, e to edit the arguments, or a reason for no" if asked.kind == "approval" else "y or n"
    answer = _line(f"Go on? ({choices}): ").strip()
    match answer.lower():
        case "y" | "yes":
            return True
        case "e" if asked.kind == "approval":
            return Approve(_edited(asked))
        case "n" | "no" | "":
            return False
        case _:
            return Deny(answer) if asked.kind == "approval" else False


def _edited(asked: Interrupt) -> dict[str, Any]:
    print(clean(msgspec.json.encode(asked.arguments).decode()), file=sys.stderr)
    while True:
        try:
            return msgspec.json.decode(_line("Arguments as JSON: "), type=dict[str, Any])
        except msgspec.DecodeError as error:
            print(f"That is not a JSON object: {error}.", file=sys.stderr)


def _line(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise KeyboardInterrupt
    return line.rstrip("\n")
