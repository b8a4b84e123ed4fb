"""What the fake model answers: a function of the request, the same for every framework."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

STORY: Final = ("The heron ", "waited by the ", "frozen river.")
OVERLOADED: Final = "gpt-5"  # each request to this model fails with a 503
SLEEP: Final = "4711.5"  # the seconds, as a mark that is found in the list of processes
PARTIAL: Final = "The heron waited by the"  # what a reader of a stalled story has seen


@dataclass
class Request:
    """A request in either of OpenAI's protocols, as far as the answer depends on it."""

    model: str
    texts: list[tuple[str, str]]  # role and text of each message
    results: list[str]  # the tool results after the last prompt
    tools: dict[str, dict[str, Any]]  # the properties of each tool's parameters
    has_schema: bool
    calls: int = 0  # those of the whole conversation
    unanswered: int = 0  # calls without a result, for which OpenAI refuses a request

    @property
    def prompt(self) -> str:
        """The text of the last user message."""
        return next((text for role, text in reversed(self.texts) if role == "user"), "")


@dataclass
class Answer:
    """Text in pieces, or tool calls. A stalled answer sends its pieces and then waits."""

    pieces: tuple[str, ...] = ()
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    stalls: bool = False

    @property
    def text(self) -> str:
        """The pieces joined."""
        return "".join(self.pieces)


def answer(request: Request) -> Answer:
    """What the model says to the last prompt."""
    prompt = request.prompt
    if name := re.match(r"My name is (\w+)", prompt):
        return Answer((f"Hello, {name[1]}.",))
    match prompt.strip():
        case "What is the capital of France?":
            return Answer(("Paris.",))
        case "What is the password?":
            return Answer(("The password is 1234.",))
        case "Good morning.":
            return Answer((f"Good morning from {request.model}.",))
        case "Tell a story.":
            return Answer(STORY)
        case "Tell a long story.":
            return Answer(STORY[:2], stalls=True)
        case "Go on.":
            return Answer(("Then the ice broke.",))
        case "Length of the Thames?":
            return Answer(("346 km",))
        case "Describe the Thames.":
            return _river(request)
        case "What is my name?":
            return Answer((_name(request),))
        case "Mend the greeting." | "Run forever.":
            return _coding(request)
        case "Review greeting.py.":
            return Answer(("I found no faults.",))
        case _:
            return _with_tools(request)


def _river(request: Request) -> Answer:
    river = {"name": "Thames", "length_km": 346}
    if request.has_schema:
        return Answer((json.dumps(river),))
    return Answer(calls=[(_tool_with("length_km", request), river)])


def _name(request: Request) -> str:
    names = re.findall(r"My name is (\w+)", " ".join(text for role, text in request.texts if role == "user"))
    return f"Your name is {names[-1]}." if names else "I do not know your name."


def _coding(request: Request) -> Answer:
    """The steps of a coding agent; the number of results says which is next."""
    if request.prompt.strip() == "Run forever.":
        command = f"sleep {SLEEP} & setsid sleep {SLEEP} & sleep {SLEEP}"
        return Answer(("It has ended.",)) if request.results else Answer(calls=[("shell", {"command": command})])
    edit: dict[str, Any] = {"old": "Helo", "new": "Hello"}
    edit = {"edits": [edit]} if "edits" in request.tools.get("edit_file", {}) else edit
    reviewer = request.tools.get("reviewer", {})
    steps: list[tuple[str, dict[str, Any]]] = [
        ("read_file", {"path": "greeting.py"}),
        ("edit_file", {"path": "greeting.py", **edit}),
        ("shell", {"command": "python3 greeting.py"}),
        ("reviewer", {next(iter(reviewer), "prompt"): "Review greeting.py."}),
    ]
    step = len(request.results)
    return Answer(calls=[steps[step]]) if step < len(steps) else Answer((f"Done. {request.results[-1]}",))


def _with_tools(request: Request) -> Answer:
    results = " ".join(request.results)
    match request.prompt.strip():
        case "Where is order 7?":
            if not results:
                return Answer(calls=[(_tool_with("number", request), {"number": 7})])
            return Answer((f"Order 7 is {results}.",))
        case "Refund orders 1 and 2.":
            if not results:
                calls = [{"order": 1, "amount": 20}, {"order": 2, "amount": 900}]
                return Answer(calls=[(_tool_with("amount", request), each) for each in calls])
            refunded = re.findall(r"refunded (\d+)", results)
            return Answer((f"Refunded: {', '.join(refunded) or 'nothing'}.",))
        case "How long is the Thames?":
            if not results:
                name, properties = next(iter(request.tools.items()))
                return Answer(calls=[(name, {next(iter(properties)): "Length of the Thames?"})])
            return Answer((f"It is {results.strip()} long.",))
        case "What is the weather in Bergen?":
            if not results:
                return Answer(calls=[(_tool_with("town", request), {"town": "Bergen"})])
            return Answer(("It rains in Bergen.",) if "rain" in results else ("I could not find out.",))
        case other:
            return Answer((f"I do not understand {other!r}.",))


def _tool_with(parameter: str, request: Request) -> str:
    return next(name for name, properties in request.tools.items() if parameter in properties)
