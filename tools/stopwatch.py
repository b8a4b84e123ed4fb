"""A stopwatch: from an empty environment to the first stopped run, by the README alone. `make stopwatch`.

The wheel comes from a local folder, and its requirements from the package index. Each case has an environment of its
own: the demo with its scripted model, the local model (its weights are downloaded), and OpenAI's against a fake server
that speaks its protocol.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.docs.pages import blocks  # noqa: E402
from tests.support.fake_provider import environment, fake_provider, say_next  # noqa: E402

LIMIT: Final = 120.0
README: Final = (ROOT / "README.md").read_text("utf-8")


def main() -> int:
    """Time the three cases. 0 when each took less than two minutes."""
    program = next(block.body for block in blocks(README) if block.names_a_vendor)
    named = re.search(r'Agent\("local:[\w.-]+"\)', README)
    assert named is not None
    local = re.sub(r'Agent\("openai:[\w.-]+"\)', named[0], program)
    with tempfile.TemporaryDirectory() as folder, fake_provider() as provider:
        wheels = Path(folder) / "wheels"
        _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)], ROOT)
        say_next(
            provider, [{"text": "In the winter of 1911 the lamp went out ", "stalls": True}, {"text": "He went up."}]
        )
        seconds = [
            _time("scripted", "quiesce", ["-m", "quiesce.demo", "--scripted"], wheels),
            _time("local", "quiesce[local]", ["-c", local], wheels, {"QUIESCE_CACHE": f"{folder}/cache"}),
            _time("openai", "quiesce[openai]", ["-c", program], wheels, environment(provider)),
        ]
    return int(max(seconds) > LIMIT)


def _time(name: str, package: str, command: list[str], wheels: Path, more: Mapping[str, str] | None = None) -> float:
    """Install and run in an empty environment; print and return the seconds."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        begin = time.monotonic()
        _run([sys.executable, "-m", "venv", "env"], here)
        python = str(here / "env/bin/python")
        _run([python, "-m", "pip", "install", "-q", "--find-links", str(wheels), package], here)
        installed = time.monotonic()
        printed = _run([python, *command], here, more)
        end = time.monotonic()
    assert "was stopped (" in printed, printed
    print(f"{name:10}{end - begin:6.1f} s ({installed - begin:.1f} s to install, {end - installed:.1f} s to run)")
    print(
        re.sub(r"^", "    ", printed[printed.index("Run ") :].split("\n\n")[0].strip(), flags=re.MULTILINE)[:900],
        flush=True,
    )
    return end - begin


def _run(command: list[str], folder: Path, more: Mapping[str, str] | None = None) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(  # noqa: S603
        command,
        cwd=folder,
        env={**clean, **(more or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)[:200]}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
