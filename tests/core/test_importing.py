"""What is imported, and when."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import quiesce
import quiesce.cancellation
import quiesce.mcp
import quiesce.sessions

pytestmark = pytest.mark.feature

EACH_FIRST = """
import importlib, pkgutil, sys
package = importlib.import_module("quiesce")
for module in list(pkgutil.walk_packages(package.__path__, "quiesce.")):
    if module.name.endswith("__main__"):
        continue
    for loaded in [name for name in sys.modules if name.split(".")[0] == "quiesce"]:
        del sys.modules[loaded]
    importlib.import_module(module.name)
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_public_name_is_there_and_nothing_else_is():
    for name in quiesce.__all__:
        found = getattr(quiesce, name)
        assert name.startswith("__") or getattr(found, "__module__", "quiesce").startswith(
            ("quiesce", "typing", "types")
        )
    assert set(quiesce.__all__) <= set(dir(quiesce))
    with pytest.raises(AttributeError, match="'quiesce' has no attribute 'Nonsense'"):
        quiesce.Nonsense


def test_a_name_brings_only_what_it_needs():
    code = "import sys; from quiesce import {}; print([n for n in ('quiesce.agent', 'asyncio') if n in sys.modules])"
    assert run(code.format("ToolError")).strip() == "[]"
    assert "quiesce.agent" not in run(code.format("tool, ToolContext"))
    assert "quiesce.agent" in run(code.format("Agent"))


def test_an_agent_without_a_session_imports_no_store_and_no_telemetry():
    code = """
import sys
from quiesce import Agent
from quiesce.models.scripted import ScriptedModel
agent = Agent(ScriptedModel(then="Done."))
assert agent("Go.").text == "Done."
heavy = ("quiesce.sessions.session", "quiesce.telemetry", "ctypes", "random", "pydantic", "httpx2")
print([name for name in heavy if name in sys.modules])
"""
    assert run(code).strip() == "[]"


@pytest.mark.proof
def test_any_module_can_be_the_first_to_be_imported():
    run(EACH_FIRST)


@pytest.mark.parametrize(
    "package",
    [quiesce, quiesce.cancellation, quiesce.mcp, quiesce.sessions],
    ids=lambda package: package.__name__,
)
def test_each_public_name_stands_once_in_a_stub(package: ModuleType) -> None:
    """`lazy_names` reads the stub line by line, so each line is one name."""
    assert package.__file__ is not None
    stub = Path(package.__file__).with_suffix(".pyi").read_text()
    imports = [node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom)]
    assert len(imports) == len(stub.splitlines())
    assert sorted(alias.name for node in imports for alias in node.names) == package.__all__
    for node in imports:
        ((name, alias),) = ((each.name, each.asname) for each in node.names)
        assert name == alias
        assert getattr(package, name) is not None
