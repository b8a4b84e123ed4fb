"""The environment of each client, under `.venv-field`, and the sources of an earlier version of Quiesce."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Final

from ..field.environments import REQUIREMENTS, ROOT, WHERE, CouldNotInstall

_HTTP2: Final = ("httpx2[http2]>=2", "msgspec>=0.20")
_LOCKED: Final = ("-c", str(ROOT / "constraints.txt"))
PACKAGES: Final[dict[str, tuple[str, ...]]] = {
    "bare": (*_LOCKED, "httpx[http2]==0.28.1", *_HTTP2),
    "quiesce": (*_LOCKED, "-e", f"{ROOT}[openai]", *_HTTP2),
    # What Quiesce needed when it sent its requests with the vendors' SDKs. Its own sources are in PYTHONPATH.
    "before": (*_LOCKED, "anyio", "pydantic", "openai", "splintr-rs", "genai-prices", *_HTTP2),
    "server": (*_LOCKED, "hypercorn==0.18.0", "trustme", *_HTTP2),
    **{name: (*REQUIREMENTS[name], *_HTTP2) for name in ("pydantic_ai", "openai_agents", "strands", "agno")},
}


def environment(name: str) -> str:
    """The Python of an environment, which is made if it is not there or was made from other packages."""
    place = WHERE / f"rows-{name}"
    python = place / "bin" / "python"
    made_from, wanted = place / "requirements.txt", "\n".join((*PACKAGES[name], *_required(name)))
    if made_from.exists() and made_from.read_text() == wanted:
        return str(python)
    print(f"installing {name} ...", file=sys.stderr, flush=True)
    if uv := shutil.which("uv"):
        _do([uv, "venv", "-q", "--clear", "--python", sys.executable, str(place)])
        _do([uv, "pip", "install", "-q", "--python", str(python), *PACKAGES[name]])
    else:
        _do([sys.executable, "-m", "venv", "--clear", str(place)])
        _do([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES[name]])
    made_from.write_text(wanted)
    return str(python)


def _required(name: str) -> list[str]:
    """What the project itself requires: its environment is made again when that has changed."""
    if name != "quiesce":
        return []
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def _do(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise CouldNotInstall((done.stderr.strip().splitlines() or ["no reason given"])[-1])


def export(revision: str, place: Path) -> Path:
    """Put the sources of a revision into a folder; returns what goes into PYTHONPATH."""
    command = ["git", "archive", "--format=tar", revision, "src"]
    archive = subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(place, filter="data")
    return place / "src"
