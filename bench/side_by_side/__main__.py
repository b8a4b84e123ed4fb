"""Run every program in its framework's environment and write the page: `python -m bench.side_by_side [name ...]`.

With names of frameworks or programs, only those are run, and the page is not written. With `--files` nothing is run:
the page gets the code and the lines of the files as they are now.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ..field.environments import environment
from . import page
from .programs import FRAMEWORKS, PROGRAMS, ProgramFailed, Runner
from .provider import provider

PACKAGES = {
    "quiesce": "quiesce",
    "pydantic_ai": "pydantic-ai-slim",
    "openai_agents": "openai-agents",
    "strands": "strands-agents",
}


def python_of(framework: str) -> str:
    """The Python of a framework's environment. Quiesce is in the one that this runs in."""
    return sys.executable if framework == "quiesce" else str(environment(framework))


def version_of(framework: str) -> str:
    """The version that is installed."""
    code = f"from importlib.metadata import version; print(version({PACKAGES[framework]!r}))"
    return subprocess.run([python_of(framework), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def write_page(seen: dict[str, dict[str, Any]]) -> None:
    """Renew the generated parts of the page."""
    versions = {framework: version_of(framework) for framework in FRAMEWORKS}
    parts = page.from_files() | page.from_run(versions, seen["cancel_from_web"])
    page.PAGE.write_text(page.fill(page.PAGE.read_text(), parts))


def main(names: list[str]) -> int:
    """Returns 1 if a program failed."""
    if names == ["--files"]:
        page.PAGE.write_text(page.fill(page.PAGE.read_text(), page.from_files()))
        return 0
    frameworks = [each for each in FRAMEWORKS if each in names] or list(FRAMEWORKS)
    programs = [each for each in PROGRAMS if each.name in names] or list(PROGRAMS)
    seen: dict[str, dict[str, Any]] = {}
    failed = False
    with provider() as address:
        for framework in frameworks:
            python = python_of(framework)
            for program in programs:
                with tempfile.TemporaryDirectory() as folder:
                    runner = Runner(framework, python, address, Path(folder))
                    try:
                        seen.setdefault(program.name, {})[framework] = found = runner.run(program)
                        print(f"{framework} {program.name}: {found}", file=sys.stderr, flush=True)
                    except ProgramFailed as error:
                        failed = True
                        print(f"{framework} {program.name}: FAILED. {error}", file=sys.stderr, flush=True)
    if not names and not failed:
        write_page(seen)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
