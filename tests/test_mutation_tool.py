"""The mutation run knows its files and tests: a renamed one is noticed here, not an hour into `make proof`."""

from __future__ import annotations

from itertools import islice

import pytest

from .support.tool_scripts import ROOT, load_script

pytestmark = pytest.mark.promise("P1")


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
