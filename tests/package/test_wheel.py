"""The package as a user gets it: the wheel is built, installed into an empty environment, and used there."""

from __future__ import annotations

import email
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from ..docs.pages import ROOT

pytestmark = [pytest.mark.house, pytest.mark.timeout(300)]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SUPPORTED = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each]
THIS = f"{sys.version_info.major}.{sys.version_info.minor}"

# A stop with a scripted model, and one of a tool in a process of its own, which has to find its modules.
PROGRAM = """
import time
from pathlib import Path
from quiesce import Agent, ToolContext, tool, __file__ as place
from quiesce.models.scripted import Call, ScriptedModel

@tool(on_stop="kill")
def block(ctx: ToolContext) -> str:
    "Block for an hour."
    ctx.report("blocking")
    time.sleep(3600)
    return "done"

agent = Agent(ScriptedModel([Call("block")], "It was stopped."), tools=[block])
outcomes = []
for event in agent.stream("Go."):
    if event.type == "tool_progress":
        agent.cancel("enough")
    if event.type == "run_ended":
        outcomes = [call.outcome.value for call in event.receipt.calls]
print(outcomes, agent("And?").text, "site-packages" in place, (Path(place).parent / "py.typed").exists())
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_has_the_types_the_console_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("quiesce/py.typed", "quiesce/__init__.pyi", "quiesce/server/static/index.html"):
        assert wanted in names
    assert {each.partition("/")[0].partition("-")[0] for each in names} == {"quiesce"}
    assert any(each.endswith("licenses/LICENSE") for each in names)


def test_the_metadata_is_complete(wheel: Path) -> None:
    said = metadata(wheel)
    assert said["Name"] == "quiesce"
    assert said["License-Expression"] == "Apache-2.0"
    assert said["Description-Content-Type"] == "text/markdown"
    assert said["Requires-Python"] == f">={SUPPORTED[0]}"
    assert said["Summary"]
    assert said["Author"]


def test_all_has_every_extra_but_the_local_model() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    named = set(everything.partition("[")[2].rstrip("]").split(","))
    assert named == extras.keys() - {"all", "local"}


def test_the_source_distribution_can_be_tested(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {each.partition("/")[2] for each in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "Makefile", "tests/promises.py", "docs/index.md"} <= names


@pytest.mark.parametrize(
    "version",
    [each if each == THIS else pytest.param(each, marks=pytest.mark.proof) for each in SUPPORTED],
)
def test_the_wheel_works_in_an_empty_environment(version: str, wheel: Path, tmp_path: Path) -> None:
    python = _find_python(version)
    if python is None:
        pytest.skip(f"NOT TESTED: there is no Python {version} here")
    _run(python, "-m", "venv", "--without-pip", "env", cwd=tmp_path)
    inside = str(tmp_path / "env/bin/python")
    pip = [sys.executable, "-m", "pip", "--python", inside, "install", "-q", "--disable-pip-version-check"]
    _run(*pip, "--no-compile", str(wheel), cwd=tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    assert _run(inside, "-W", "error", "program.py", cwd=tmp_path) == "['killed'] It was stopped. True True\n"
    assert "quiesce" in _run(str(tmp_path / "env/bin/quiesce"), "--version", cwd=tmp_path)


def _find_python(version: str) -> str | None:
    if version == THIS:
        return sys.executable
    found = shutil.which(f"python{version}")
    if found is None:
        return None
    works = subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0  # pyenv's may be a shim
    return found if works else _pyenv(version)


def _pyenv(version: str) -> str | None:
    return next((str(each) for each in Path.home().glob(f".pyenv/versions/{version}.*/bin/python")), None)


def _run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
