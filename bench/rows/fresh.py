"""The rows whose clients are started anew in each round: import, ready, and runs at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from .. import ready
from .._server import TOGETHER_CHUNKS
from .figures import Figures, failures_are_noted
from .process import ClientFailed, Process, Subject
from .programs import IMPORT, IMPORTS, READY
from .wires import Ways


@contextlib.contextmanager
def _compiled(subjects: Sequence[Subject]) -> Iterator[dict[str, dict[str, str]]]:
    """The variables of each. Compiled modules are kept in a folder, as they are after an installation."""
    with tempfile.TemporaryDirectory(prefix="rows-") as folder:
        variables = {each.name: each.variables({"PYTHONPYCACHEPREFIX": folder}) for each in subjects}
        for each in variables.values():
            each.pop("PYTHONDONTWRITEBYTECODE", None)
        yield variables


def _import_once(subject: Subject, variables: dict[str, str]) -> dict[str, float]:
    program = IMPORT.format(imports=IMPORTS[subject.module])
    command = [subject.python(), "-W", "ignore", "-c", program]
    with tempfile.TemporaryDirectory(prefix="rows-") as elsewhere:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables, cwd=elsewhere)
    if done.returncode:
        raise ClientFailed(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout.splitlines()[-1])


def imports(subjects: Sequence[Subject], rounds: int) -> Figures:
    """Importing, with the memory after it. The first round compiles, and does not count."""
    figures = Figures()
    with _compiled(subjects) as variables:
        for number in range(rounds + 1):
            for subject in figures.able(subjects):
                with failures_are_noted(figures, subject.name):
                    took = _import_once(subject, variables[subject.name])
                    if number:
                        figures.add(subject.name, took)
    return figures


def first_answers(subjects: Sequence[Subject], rounds: int) -> Figures:
    """From the start of a process: seconds to the first byte of its request, CPU, and the memory after the answer."""
    return asyncio.run(_first_answers(subjects, rounds))


async def _first_answers(subjects: Sequence[Subject], rounds: int) -> Figures:
    figures, provider = Figures(), ready.Provider()
    server = await asyncio.start_server(provider.answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    with _compiled(subjects) as variables:
        for number in range(rounds + 1):
            for subject in figures.able(subjects):
                own = variables[subject.name] | {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}
                with failures_are_noted(figures, subject.name):
                    took = await ready.run_program(subject.python(), READY[subject.module], provider, own)
                    if number:
                        found = {"cpu": took.cpu, "wall": took.first_byte, "memory": took.memory * 2**20}
                        figures.add(subject.name, found)
    server.close()
    await server.wait_closed()
    return figures


def at_once(subjects: Sequence[Subject], ways: Ways, rounds: int, runs: int) -> Figures:
    """Runs at once, with the memory of each."""
    figures = Figures()
    for _ in range(rounds):
        if figures.took_long:
            break
        for subject in figures.able(subjects):
            with failures_are_noted(figures, subject.name):
                figures.add(subject.name, _at_once(subject, ways, runs))
    return figures


def _at_once(subject: Subject, ways: Ways, runs: int) -> dict[str, Any]:
    with contextlib.closing(Process(subject, ways.way("plain"))) as process:
        process.do("run", kind="together-1")  # what is imported and connected first does not count
        found = process.do("at_once", kind=f"together-{runs}", runs=runs)
    if found["words"] != TOGETHER_CHUNKS:
        raise ClientFailed(f"{found['words']} words of {TOGETHER_CHUNKS}")
    return found
