"""What a tool's process finds of the host's environment: a small harmless part, and what the developer names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tool_runs import call, run_async

from quiesce import ToolContext, tool
from quiesce.errors import ConfigurationError
from quiesce.tools.builtin import make_python, make_shell, python, shell
from quiesce.tools.tool import Tool

pytestmark = pytest.mark.feature

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hush")
    monkeypatch.setenv("OTHER", "shared")
    monkeypatch.setenv("LC_TIME", "C")


def names(text: str) -> set[str]:
    return {line.partition("=")[0] for line in text.splitlines()}


# What the shells themselves, or bwrap, put there.
OWN = {"PWD", "SHLVL", "_", "OLDPWD"}
SMALL = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR"}


def test_a_shell_gets_a_small_environment() -> None:
    text = run_async(call(shell, {"command": "env"})).text
    assert {"PATH", "LC_TIME"} <= names(text)
    assert {name for name in names(text) if not name.startswith("LC_")} <= SMALL | OWN
    assert run_async(call(python, {"code": "import os; print('OPENAI_API_KEY' in os.environ)"})).text == "False"


def test_what_is_given_comes_on_top() -> None:
    given = make_shell(env={"GIVEN": "yes", "TERM": "mine"})
    text = run_async(call(given, {"command": "echo $GIVEN $TERM ${PATH:+path} ${OPENAI_API_KEY:-none}"})).text
    assert text == "yes mine path none"


def test_variables_are_inherited_by_name_or_all_together() -> None:
    async def main() -> None:
        command = {"command": "echo ${OTHER:-none} ${OPENAI_API_KEY:-none}"}
        assert (await call(make_shell(inherit_env=["OTHER", "NOT_SET"]), command)).text == "shared none"
        assert (await call(make_shell(inherit_env=True), command)).text == "shared sk-hush"
        assert (await call(make_shell(inherit_env=True, env={"OTHER": "mine"}), command)).text == "mine sk-hush"
        code = {"code": "import os; print(os.environ.get('OTHER'))"}
        assert (await call(make_python(inherit_env=["OTHER"]), code)).text == "shared"

    run_async(main())


def test_a_string_is_not_taken_for_a_list_of_names() -> None:
    result = run_async(call(make_shell(inherit_env="OTHER"), {"command": "env"}))  # pyright: ignore
    assert "a list of names" in result.text


@needs_bwrap
def test_a_sandbox_gets_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        sandboxed = make_shell(sandbox=True, cwd=str(tmp_path))
        text = (await call(sandboxed, {"command": "env; cat /proc/*/environ | tr '\\0' '\\n'"})).text
        assert {name for name in names(text) if not name.startswith("LC_")} <= SMALL | OWN
        given = make_shell(sandbox=True, cwd=str(tmp_path), env={"GIVEN": "yes"}, inherit_env=["OTHER"])
        assert (await call(given, {"command": "echo $GIVEN $OTHER"})).text == "yes shared"
        # The value is in no command line, which every user of the machine may read.
        shown = (await call(given, {"command": "cat /proc/*/cmdline | tr '\\0' ' '"})).text
        assert "shared" not in shown

    run_async(main())


def test_a_function_in_a_process_of_its_own_has_the_whole_environment() -> None:
    @tool(on_stop="kill")
    def look() -> str:
        """Look."""
        return os.environ["OPENAI_API_KEY"]

    assert run_async(call(look)).text == "sk-hush"


def test_a_function_in_a_process_of_its_own_can_be_given_less() -> None:
    def look() -> list[str]:
        """Look."""
        import subprocess

        inherited = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
        return [os.environ.get("OTHER", "none"), os.environ.get("OPENAI_API_KEY", "none"), str("hush" in inherited)]

    async def main() -> None:
        for inherit_env, seen in ((False, "none none False"), (["OTHER"], "shared none False"), (True, None)):
            text = (await call(Tool(look, on_stop="kill", inherit_env=inherit_env))).text
            assert json.loads(text) == (seen.split() if seen else ["shared", "sk-hush", "True"])

    run_async(main())
    for options in ({"inherit_env": False}, {"inherit_env": "OTHER", "on_stop": "kill"}):
        with pytest.raises(ConfigurationError, match="inherit_env"):
            Tool(look, **options)


def test_an_own_tool_gets_a_small_environment() -> None:
    @tool
    async def look(ctx: ToolContext) -> str:
        """Look."""
        return (await ctx.run_process(["env"])).stdout

    assert "hush" not in run_async(call(look)).text


HIDING = """
import ctypes, os, subprocess, sys
from quiesce.processes.environment import hide_environment

os.environ["CHANGED"] = "changed"
del os.environ["REMOVED"]
file = open("/proc/self/environ", "rb")  # later, this is root's alone
done = hide_environment()
own = file.read()
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
print(done, b"hush" in own, b"PATH=/" in own)
print(os.environ["SECRET"], getenv(b"SECRET"), getenv(b"EMPTY"), os.environ["CHANGED"], getenv(b"REMOVED"))
print(subprocess.run(["sh", "-c", "echo $SECRET $CHANGED $REMOVED"], capture_output=True, text=True).stdout.strip())
print(hide_environment())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc")
def test_a_hidden_environment_is_still_the_programs_own() -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "SECRET": "hush=1",
        "EMPTY": "",
        "CHANGED": "hush-before",
        "REMOVED": "hush",
    }
    done = subprocess.run(
        [sys.executable, "-c", HIDING], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == [
        "True False True",
        "hush=1 b'hush=1' b'' changed None",
        "hush=1 changed",
        "True",
    ]
