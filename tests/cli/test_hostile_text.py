"""What models, tools and people say, as an attack on the terminal: every command that prints it, with many codes."""

from __future__ import annotations

import unicodedata

import httpx2
import pytest

from quiesce import Agent, tool
from quiesce.cli import main
from quiesce.models.scripted import Call, Say, ScriptedModel

from ..server.support import read_events, serving, start

pytestmark = pytest.mark.feature

# Each would do something to a terminal that obeys it.
CODES = {
    "clear the screen": "\x1b[2J\x1b[H",
    "set the title": "\x1b]0;owned\x07",
    "write to the clipboard": "\x1b]52;c;b3duZWQ=\x07",
    "a link that lies": "\x1b]8;;https://evil.example/\x1b\\https://good.example/\x1b]8;;\x1b\\",
    "ask the terminal to answer": "\x1b[6n\x1b[c\x1bP$qm\x1b\\",
    "the same in one byte": "\x9b2J\x9d0;owned\x9c\x90q\x9c",
    "overwrite the line": "rm -rf /\rls        ",
    "delete what was said": "rm\x08\x08ls",
    "hide": "\x1b[8mhidden\x1b[0m\x1b[?25l",
    "another character set": "\x0e\x1b(0",
    "turn the reading around": "\u202egnp.exe\u2066\u2069",
    "ring": "\x07\x00\x7f",
}
ATTACK = "".join(f"{name}: {code}\n" for name, code in CODES.items())
BIDI = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@tool(requires_approval=True, preview=lambda arguments: f"-{arguments['path']}\n+{ATTACK}")
def write(path: str) -> str:
    """Write."""
    raise ValueError(ATTACK + path)


def harmful(text: str) -> set[str]:
    """The characters in it that a terminal would obey."""
    return {each for each in text if (unicodedata.category(each) == "Cc" and each not in "\t\n") or each in BIDI}


def waiting_run(client: httpx2.Client) -> str:
    run_id = start(client, f"prompt {ATTACK}")
    read_events(client, run_id)
    return run_id


@pytest.mark.parametrize("is_json", [False, True])
def test_no_command_gives_a_code_to_the_terminal(capsys: pytest.CaptureFixture[str], is_json: bool) -> None:
    asks = [Say(ATTACK), Call("write", {"path": ATTACK})]
    agent = Agent(ScriptedModel(asks, [Say(ATTACK)]), tools=[write])
    also = ["--json"] if is_json else []
    with serving(agent) as served, served.client() as client:
        run_id = waiting_run(client)
        for command in (["ps", "--all"], ["logs", run_id], ["attach", run_id], ["approve", run_id, "--approve"]):
            main([*command, *also, "--url", served.url])
            shown = capsys.readouterr()
            assert shown.out, command
            assert not harmful(shown.out + shown.err), command
        newest = client.get("/runs").json()["runs"][0]["id"]
        read_events(client, newest)
        for command in (["logs", newest], ["stop", newest, "--reason", ATTACK, "--wait"]):
            main([*command, *also, "--url", served.url])
            shown = capsys.readouterr()
            assert shown.out, command
            assert not harmful(shown.out + shown.err), command
