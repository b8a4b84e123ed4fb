"""The options of every command: each has a help text, `--json` is one object per line, and shells complete them."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from quiesce import Agent, Session
from quiesce.cli import main
from quiesce.cli.completion import SHELLS
from quiesce.cli.json_lines import escaped
from quiesce.cli.main import make_parser
from quiesce.models.scripted import ScriptedModel

from ..server.support import serving
from . import agents

pytestmark = pytest.mark.feature
# Commands without an outcome that a program would read: a conversation, a script for a shell, and JSON Lines anyway.
WITHOUT_JSON = {"quiesce chat", "quiesce completion", "quiesce sessions export"}


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser and those of its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from parsers(each)


def is_leaf(parser: argparse.ArgumentParser) -> bool:
    return not any(isinstance(action, argparse._SubParsersAction) for action in parser._actions)


def test_every_option_of_every_command_has_a_help_text() -> None:
    without = [
        f"{each.prog} {action.dest}"
        for each in parsers(make_parser())
        for action in each._actions
        if not isinstance(action, argparse._SubParsersAction) and (action.help or "").strip() in ("", "==SUPPRESS==")
    ]
    assert without == []
    for each in parsers(make_parser()):
        each.format_help()  # a stray per cent sign would raise


def test_every_command_has_json() -> None:
    without = {
        each.prog
        for each in parsers(make_parser())
        if is_leaf(each) and not any("--json" in action.option_strings for action in each._actions)
    }
    assert without == WITHOUT_JSON


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_stop_and_approve_print_one_object_for_each_run(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(agents.endless()) as served, served.client() as client:
        running = client.post("/runs", json={"prompt": "tell me"}).json()["run"]["id"]
        assert main(["stop", running, "--wait", "--json", "--url", served.url]) == 0
        (stopped,) = lines(capsys)
        assert (stopped["run"], stopped["accepted"], stopped["at_rest"]) == (running, True, True)
        assert stopped["receipt"]["run_id"] == running  # type: ignore[index]
        assert main(["approve", running, "--json", "--approve", "--url", served.url]) == 1
        assert lines(capsys) == [{"run": running, "continued_as": None, "waiting": []}]


def test_an_approval_prints_the_run_that_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(agents.careful()) as served, served.client() as client:
        run = client.post("/runs", json={"prompt": "clean up"}).json()["run"]["id"]
        assert main(["attach", run, "--json", "--url", served.url]) == 0
        events = lines(capsys)
        assert events[-1]["event"]["type"] == "run_ended"  # type: ignore[index]
        assert main(["approve", run, "--approve", "--json", "--url", served.url]) == 0
        (told,) = lines(capsys)
        assert told["run"] == run
        assert told["continued_as"] not in (None, run)
        assert told["waiting"] == []


def test_sessions_as_json_and_what_is_shown_gives_the_terminal_no_orders(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store = str(tmp_path / "chats.db")
    session = Session("one", store)
    Agent(ScriptedModel("\x1b]0;owned\x07 hello \x9b2J"))("hi", session=session)
    session.store.close().result()
    where = ["--store", store]
    assert main(["sessions", "show", "one", *where]) == 0
    shown = capsys.readouterr().out
    assert "hello" in shown
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)
    assert main(["sessions", "list", "--json", *where]) == 0
    assert [each["name"] for each in lines(capsys)] == ["one"]
    assert main(["sessions", "show", "one", "--json", *where]) == 0
    raw = capsys.readouterr().out
    assert "\x9b" not in raw
    assert [each["type"] for each in json.loads(raw)["messages"]] == ["user", "assistant"]
    assert json.loads(raw)["messages"][1]["content"][0]["text"] == "\x1b]0;owned\x07 hello \x9b2J"
    assert main(["sessions", "backup", str(tmp_path / "copy.db"), "--json", *where]) == 0
    assert lines(capsys) == [{"file": str(tmp_path / "copy.db")}]
    assert main(["sessions", "repair", "one", "--json", *where]) == 0
    assert lines(capsys) == [{"session": "one", "damage": None}]
    assert main(["sessions", "delete", "one", "--json", *where]) == 0
    assert lines(capsys) == [{"deleted": "one"}]


def test_json_lines_are_escaped_without_changing_what_they_say() -> None:
    text = "a\x9bb\u202ec\x7f"
    assert json.loads(escaped(json.dumps({"text": text}, ensure_ascii=False))) == {"text": text}
    assert escaped('"\x9b"') == '"\\u009b"'


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_for_each_shell_names_the_commands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("approve", "on-disconnect", "sessions"):
        assert word in script


def test_completion_in_a_real_bash(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", "bash"]) == 0
    (tmp_path / "quiesce.bash").write_text(capsys.readouterr().out)

    def completed(line: str) -> set[str]:
        words = line.split(" ")
        script = (
            f"source {tmp_path}/quiesce.bash; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
            f"_shtab_quiesce quiesce {words[-1]}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        )
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=True)
        return {each.strip() for each in done.stdout.splitlines()}

    assert {"stop", "serve", "sessions", "completion"} <= completed("quiesce s") | completed("quiesce c")
    assert "--mode" in completed("quiesce stop --m")
    assert "kill" in completed("quiesce stop --mode k")
    assert "list" in completed("quiesce sessions l")


@pytest.mark.parametrize("as_json", [True, False])
def test_serve_without_a_file_prints_its_addresses(as_json: bool) -> None:
    command = [
        sys.executable,
        "-m",
        "quiesce.cli",
        "serve",
        "--model",
        "ollama:any",
        "--port",
        "0",
        "--log-level",
        "error",
    ]
    process = subprocess.Popen([*command, *(["--json"] if as_json else [])], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        second = "" if as_json else process.stdout.readline()
        url = json.loads(line)["url"] if as_json else line.removeprefix("Console: ").strip().rstrip("/")
        served = httpx2.get(f"{url}/agents").json()["agents"]
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
        process.stdout.close()
    if as_json:
        assert json.loads(line) == {"url": url, "console": f"{url}/", "docs": f"{url}/docs", "pid": process.pid}
    else:
        assert second == f"Docs:    {url}/docs\n"
    assert [(each["name"], each["model"]) for each in served] == [("agent", "ollama:any")]
    assert code == 0


def test_serve_needs_an_agent_or_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as usage:
        main(["serve"])
    assert usage.value.code == 2
    assert "name the agents to serve, or a --model" in capsys.readouterr().err


def test_python_with_the_name_of_the_package_is_the_command() -> None:
    said = subprocess.run([sys.executable, "-m", "quiesce", "--help"], capture_output=True, text=True, check=True)
    assert said.stdout == make_parser().format_help()
