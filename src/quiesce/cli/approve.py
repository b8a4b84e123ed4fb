"""`quiesce approve RUN`: answer what a run of a server asks a person."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from .json_lines import add_option, print_line, tell
from .main import Subparsers
from .remote import add_options, at_server, run_at_server
from .run_answers import add_options as add_answer_options
from .run_answers import answers_to, check_terminal, has_answers, sent_answer, waiting_for
from .sanitize import clean

NOTHING_ASKED: Final = 1
STILL_WAITING: Final = 4


def add_parser(subparsers: Subparsers) -> None:
    """Describe the subcommand."""
    parser = subparsers.add_parser("approve", help="answer what a run asks: approvals, questions and limits")
    parser.add_argument("id", metavar="RUN", help="the run's id, or the beginning of it")
    add_options(parser)
    add_answer_options(parser)
    add_option(parser, "the outcome (run, continued_as, and what still waits)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Answer, and print the run that goes on; returns 4 when something still waits for an answer."""
    if not has_answers(options):
        options.ask = sys.stdin.isatty()
    check_terminal(options)
    run = at_server(options, lambda client: run_at_server(client, options.id))
    if not run.interrupts:
        tell(options, f"{run.id} asks nothing.", {"run": run.id, "continued_as": None, "waiting": []})
        return NOTHING_ASKED
    answers = answers_to(run.interrupts, options)  # without an event loop, which would take the Ctrl-C
    left = tuple(each for each in run.interrupts if each.id not in answers)
    for each in left if not options.json else ():
        print(clean(f"It waits for a person: {waiting_for(each)}"), file=sys.stderr)
    if not answers and options.json:
        print_line({"run": run.id, "continued_as": None, "waiting": left})
        return STILL_WAITING
    if not answers:
        print("Use --approve, --deny or --ask.", file=sys.stderr)
        return STILL_WAITING
    sent = {name: sent_answer(answer) for name, answer in answers.items()}
    going_on = at_server(options, lambda client: client.resume_run(run.id, sent))
    text = f"{going_on.id}: goes on. `quiesce attach {going_on.id}` follows it."
    tell(options, text, {"run": run.id, "continued_as": going_on.id, "waiting": left})
    return STILL_WAITING if left else 0
