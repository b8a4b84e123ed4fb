"""The mutation run knows its files and tests: a renamed one is noticed here, not an hour into `make proof`."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from .support.tool_scripts import ROOT, load_script

pytestmark = pytest.mark.house


def test_every_file_has_mutants_and_every_named_test_exists() -> None:
    mutation = load_script("mutation")
    for pattern, tests in mutation.TESTS.items():
        files = list((ROOT / "src" / "quiesce").glob(pattern))
        assert any(next(mutation.mutants_of(file, file.read_text()), None) for file in files), pattern
        for name in tests:
            path, _, test = name.partition("::")
            assert (ROOT / path).exists(), name
            assert test.partition("[")[0] in (ROOT / path).read_text(), name
    assert len(list(islice(mutation.all_mutants(""), 301))) > 300


def test_an_interrupted_run_goes_on_with_the_mutants_that_have_no_outcome(tmp_path: Path) -> None:
    mutation = load_script("mutation")
    sample = list(islice(mutation.all_mutants("steer.py"), 4))
    file = tmp_path / "outcomes.jsonl"
    first = mutation.Outcomes(sample, file)
    assert first.remaining == sample
    first.add(sample[0], "killed")
    first.add(sample[2], "survived")
    second = mutation.Outcomes(sample, file)
    assert second.remaining == [sample[1], sample[3]]
    assert second.found == {"killed": [sample[0]], "timed out": [], "survived": [sample[2]]}
