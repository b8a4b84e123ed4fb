"""Driving a program that is a web application: an answer is streamed and stopped, then the next prompt is sent."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from .answers import PARTIAL
from .programs import Program, ProgramFailed, Runner, source


def drive(runner: Runner, program: Program) -> dict[str, Any]:
    """Stop an answer that has stalled, then ask for more in the same conversation."""
    with _served(runner, program) as url, httpx2.Client(base_url=url, timeout=30, trust_env=False) as client:
        received = ""
        stopped = 0.0
        with client.stream("POST", "/chat/ann", content="Tell a long story.") as answer:
            for piece in answer.iter_text():
                received += piece
                if not stopped and PARTIAL in received:
                    stopped = time.monotonic()
                    client.post("/stop/ann").raise_for_status()
        ended = time.monotonic()
        if not stopped:
            raise ProgramFailed(f"The text was not streamed: {received!r}.")
        again = client.post("/chat/ann", content="Go on.")
        if again.status_code != 200 or again.text != "Then the ice broke.":
            raise ProgramFailed(f"The next prompt was answered with {again.status_code} {again.text!r}.")
    first, *_, last = runner.requests(program)
    told = [text for _, text in last["texts"]]
    return {
        "ended_s": ended - stopped,
        "closed": first["closed"],
        "prompt_kept": any("Tell a long story." in text for text in told),
        "text_kept": any(PARTIAL in text for text in told),
        "told": last["texts"],
    }


@contextmanager
def _served(runner: Runner, program: Program) -> Iterator[str]:
    file = source(runner.framework, program)
    command = [runner.python, "-m", "uvicorn", f"{file.stem}:app", "--app-dir", str(file.parent), "--port", "0"]
    with (
        (runner.folder / "uvicorn.log").open("w+") as log,
        subprocess.Popen(
            command,
            cwd=runner.folder,
            env=runner.environment(program),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stderr is not None
        try:
            for line in process.stderr:
                log.write(line)
                if found := re.search(r"running on (http://\S+)", line):
                    yield found[1]
                    break
            else:
                log.seek(0)
                raise ProgramFailed(log.read()[-2000:])
        finally:
            process.terminate()
            process.stderr.read()
