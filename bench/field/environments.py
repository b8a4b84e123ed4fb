"""One virtual environment for each framework, because their dependencies clash. The versions were tested."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
WHERE: Final = ROOT / ".venv-field"

# What the web handlers of bench/side_by_side are served with.
WEB: Final = ("starlette>=1", "uvicorn>=0.38")

# What each adapter needs, and what the bare client needs in each.
REQUIREMENTS: Final[dict[str, tuple[str, ...]]] = {
    "quiesce": ("-e", f"{ROOT}[openai]"),
    "openai_agents": ("openai-agents==0.24.0", "openai==3.51.0", *WEB),
    "pydantic_ai": ("pydantic-ai-slim[openai,mcp]==2.66.0", "openai==3.51.0", *WEB),
    "strands": ("strands-agents[openai]==1.62.0", *WEB),
    # Newer releases of langchain need a certifi that the index did not have yet on 2026-11-18.
    "langgraph": (
        "langgraph==1.2.22",
        "langchain==1.4.7",
        "langchain-core==1.7.2",
        "langchain-openai==1.7.3",
        "openai==3.51.0",
    ),
    "agent_framework": ("agent-framework-core==1.23.0", "agent-framework-openai==1.17.0", "openai==3.51.0"),
    "autogen": ("autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5"),
    "google_adk": ("google-adk[openai]==2.13.0",),
    "agno": ("agno==3.1.10", "openai==3.51.0"),
}
BARE_CLIENT: Final = ("httpx2>=2", "msgspec>=0.20")


class CouldNotInstall(Exception):
    """An environment could not be made. Says what the installer said last."""


def environment(name: str) -> Path:
    """The Python of a framework's environment, which is made if it is not there or was made from other requirements."""
    place = WHERE / name
    python = place / "bin" / "python"
    wanted = "\n".join(REQUIREMENTS[name] + BARE_CLIENT)
    made_from = place / "requirements.txt"
    if made_from.exists() and made_from.read_text() == wanted:
        return python
    print(f"installing {name} ...", file=sys.stderr, flush=True)
    packages = [*REQUIREMENTS[name], *BARE_CLIENT]
    if uv := shutil.which("uv"):
        _do([uv, "venv", "-q", "--clear", "--python", sys.executable, str(place)])
        _do([uv, "pip", "install", "-q", "--python", str(python), *packages])
    else:
        _do([sys.executable, "-m", "venv", "--clear", str(place)])
        _do([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages])
    made_from.write_text(wanted)
    return python


def _do(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise CouldNotInstall((done.stderr.strip().splitlines() or ["no reason given"])[-1])
