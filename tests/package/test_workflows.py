"""The workflows and issue templates of GitHub: they are valid, and run what the project itself runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..docs.pages import ROOT
from .test_wheel import SUPPORTED

pytestmark = pytest.mark.house
FILES = sorted((ROOT / ".github").rglob("*.yml"))


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_valid(path: Path) -> None:
    assert load(path)


def test_the_workflow_runs_what_must_pass_before_a_merge() -> None:
    jobs = load(ROOT / ".github/workflows/ci.yml")["jobs"]
    assert {"run": "bash .ci/run"} in jobs["ci"]["steps"]
    assert jobs["wheel"]["strategy"]["matrix"]["python"] == SUPPORTED


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_targets_that_a_workflow_makes_exist(path: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"run: make ([\w-]+)", path.read_text())) <= targets
