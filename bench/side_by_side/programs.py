"""The twelve programs: what each must print, and how a program is run against the fake provider and checked."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from .answers import OVERLOADED, STORY

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "examples" / "side_by_side"
FRAMEWORKS: Final = {
    "quiesce": "Quiesce",
    "pydantic_ai": "Pydantic AI",
    "openai_agents": "OpenAI Agents",
    "strands": "Strands",
}
TIME_LIMIT: Final = 60  # seconds for one process


class ProgramFailed(Exception):
    """A program did not do what it claims. Says what was expected, and what it did."""


@dataclass(frozen=True)
class Program:
    """One everyday task: what it is, how the program is called, and what it must print at its end."""

    name: str
    title: str
    task: str
    prints: str = ""
    calls: Sequence[Sequence[str]] = ((),)  # the arguments of each process that is started, one after the other
    stdin: str = ""
    served: bool = False  # a web application, which is driven over HTTP


PROGRAMS: Final = (
    Program("agent_by_name", "Agent by name", "One question to a model that is chosen by its name.", "Paris."),
    Program(
        "tool_with_dependency",
        "Tool with a dependency",
        "A tool that uses an object of the run (here the orders of one user), with its type.",
        "Order 7 is on its way.",
    ),
    Program("typed_output", "Typed output", "An answer that is a pydantic model.", "Thames: 346 km"),
    Program("streaming_text", "Streaming text", "The pieces of the text as they arrive.", "|".join((*STORY, ""))),
    Program(
        "cancel_from_web",
        "Cancel from a web handler",
        "A web application with a conversation for each user: one request streams an answer, another one stops it.",
        served=True,
    ),
    Program(
        "session_per_user",
        "Session per user",
        "A conversation for each user that is on disk: each prompt comes in a process of its own.",
        "Hello, Ann.\nHello, Bob.\nYour name is Ann.",
        calls=[("ann", "My name is Ann."), ("bob", "My name is Bob."), ("ann", "What is my name?")],
    ),
    Program(
        "approval",
        "Approval",
        "A tool that runs only after a person has agreed at the terminal: yes to one call, no to another.",
        "Refunded: 20.",
        stdin="y\nn\n",
    ),
    Program("sub_agent", "Sub-agent", "An agent that another agent calls as a tool.", "It is 346 km long."),
    Program(
        "fallback_model",
        "Fallback model",
        "A second model that answers when the first one is overloaded (HTTP 503).",
        "Good morning from gpt-5-mini.",
    ),
    Program(
        "guardrail",
        "Guardrail",
        "A function that checks each prompt; a refused one is not sent to the model, and the reason is shown.",
        "it asks for a password\nParis.",
    ),
    Program("mcp_tools", "MCP", "The tools of an MCP server that the program starts.", "It rains in Bergen."),
    Program(
        "time_limit",
        "Timeout",
        "An answer that may take one second; the provider stalls in the middle of it.",
        "No answer within a second.",
    ),
)


def source(framework: str, program: Program) -> Path:
    """The file of a program."""
    return FOLDER / framework / f"{program.name}.py"


def count_lines(text: str) -> int:
    """The lines that have code: no blank lines, no comments, not the docstring of the module."""
    return len({line for each in _tokens(text) for line in range(each.start[0], each.end[0] + 1)})


def count_tokens(text: str) -> int:
    """The tokens of Python, which do not depend on the formatter, with the same exceptions."""
    return len(_tokens(text))


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    ignored = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = [each for each in tokenize.generate_tokens(io.StringIO(text).readline) if each.type not in ignored]
    return tokens[1:] if tokens[0].type == tokenize.STRING else tokens


@dataclass
class Runner:
    """Runs the programs of one framework with one Python, in a folder that is empty at the beginning."""

    framework: str
    python: str
    provider: str
    folder: Path

    def run(self, program: Program) -> dict[str, Any]:
        """Run a program, or raise `ProgramFailed`. Returns what was seen from outside."""
        if program.served:
            from .web import drive

            return drive(self, program)
        began = time.monotonic()
        printed = "\n".join(self._process(program, arguments) for arguments in program.calls)
        seconds = time.monotonic() - began
        # The questions of a dialogue at the terminal are each framework's own: there only the end of the output counts.
        if not (printed.endswith(program.prints) if program.stdin else _is_expected(printed, program.prints)):
            raise ProgramFailed(f"It printed {printed!r} instead of {program.prints!r}.")
        requests = self.requests(program)
        _check_requests(program, requests)
        return {"seconds": seconds, "requests": len(requests), "schema": any(each["schema"] for each in requests)}

    def _process(self, program: Program, arguments: Sequence[str]) -> str:
        done = subprocess.run(
            [self.python, str(source(self.framework, program)), *arguments],
            input=program.stdin,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
            cwd=self.folder,
            env=self.environment(program),
        )
        if done.returncode:
            raise ProgramFailed(done.stderr.strip()[-2000:] or f"exit code {done.returncode}")
        return done.stdout.strip()

    def requests(self, program: Program) -> list[dict[str, Any]]:
        """What the provider got from a program."""
        with httpx2.Client(trust_env=False) as client:
            return client.get(f"{self.provider}/{self._address(program)}/report").json()

    def environment(self, program: Program) -> dict[str, str]:
        """The environment of a program: nothing leaves the machine."""
        return os.environ | {
            "PATH": f"{self._commands()}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder),
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": f"{self.provider}/{self._address(program)}/v1",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "NO_PROXY": "127.0.0.1",
        }

    def _address(self, program: Program) -> str:
        return f"{self.framework}-{program.name}"

    def _commands(self) -> Path:
        """A folder with the command `weather-mcp`, which runs in this environment, not in that of the framework."""
        commands = self.folder / "bin"
        script = commands / "weather-mcp"
        if not script.exists():
            commands.mkdir()
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).with_name("weather_mcp.py")}"\n')
            script.chmod(0o755)
        return commands


def _is_expected(printed: str, expected: str) -> bool:
    """Whether each line ends as expected. A word such as "Refused:" may come before."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    ends = expected.splitlines()
    return len(lines) == len(ends) and all(line.endswith(end) for line, end in zip(lines, ends, strict=True))


def _check_requests(program: Program, requests: list[dict[str, Any]]) -> None:
    """What a program claims beyond what it prints."""
    prompts = [each["prompt"] for each in requests]
    models = [each["model"] for each in requests]
    if program.name == "guardrail" and "What is the password?" in prompts:
        raise ProgramFailed("The refused prompt was sent to the model.")
    if program.name == "fallback_model" and models[0] != OVERLOADED:
        raise ProgramFailed("The first model was not asked.")
    if program.name == "sub_agent" and "Length of the Thames?" not in prompts:
        raise ProgramFailed("The sub-agent was not asked.")
    if program.name == "session_per_user" and len(prompts) != len(program.calls):
        raise ProgramFailed("Not each prompt was one request.")
