"""The type checkers as the typing tests use them: each gives the lines of each file that it finds an error on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path(__file__).parent
FILES: Final = (HERE / "agents.py", HERE / "tools.py")

Line: TypeAlias = tuple[str, int]
Errors: TypeAlias = dict[Line, str]

# As a user would have it who asks for all that a checker can do about types.
_PYRIGHT_SETTINGS: Final = {
    "pythonVersion": "3.11",
    "typeCheckingMode": "strict",
    "reportUnusedExpression": False,
    "reportUnusedFunction": False,
    "reportUnusedClass": False,
}


def expected_lines(path: Path) -> set[Line]:
    """The lines that are marked: a checker must find an error on each, and on no other line."""
    lines = path.read_text().splitlines()
    return {(path.name, number) for number, line in enumerate(lines, 1) if "# error" in line}


def _output(*argv: str, accept: Sequence[int] = (0, 1)) -> str:
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in accept, done.stdout + done.stderr
    return done.stdout


def _pyright(module: str, settings: dict[str, Any]) -> Callable[[Path], Errors]:
    def check(scratch: Path) -> Errors:
        config = scratch / "pyrightconfig.json"
        python = {"venvPath": str(Path(sys.prefix).parent), "venv": Path(sys.prefix).name}
        config.write_text(
            json.dumps(settings | python | {"include": [os.path.relpath(file, scratch) for file in FILES]})
        )
        found = json.loads(_output(sys.executable, "-m", module, "--outputjson", "-p", str(config)))
        assert found["summary"]["filesAnalyzed"] == len(FILES), found
        return {
            (Path(each["file"]).name, each["range"]["start"]["line"] + 1): each["message"]
            for each in found["generalDiagnostics"]
            if each["severity"] == "error"
        }

    return check


def _mypy(scratch: Path) -> Errors:
    argv = ("--strict", "--python-version", "3.11", "--no-error-summary", "--output", "json")
    places = ("--config-file", "", "--cache-dir", str(scratch), "--follow-imports", "silent")
    printed = _output(sys.executable, "-m", "mypy", *argv, *places, *map(str, FILES))
    found = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return {(Path(each["file"]).name, each["line"]): each["message"] for each in found if each["severity"] == "error"}


CHECKERS: Final[dict[str, Callable[[Path], Errors]]] = {
    "basedpyright": _pyright("basedpyright", _PYRIGHT_SETTINGS),
    "pyright": _pyright("pyright", _PYRIGHT_SETTINGS),
    "mypy": _mypy,
}
