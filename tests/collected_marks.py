"""A pytest plugin that prints each collected test with the promises and cases that it names."""

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    for item in session.items:
        promises = " ".join(sorted({name for mark in item.iter_markers("promise") for name in mark.args}))
        cases = " ".join(sorted({name for mark in item.iter_markers("case") for name in mark.args}))
        print(f"marks\t{item.nodeid}\t{promises}\t{cases}".replace("\n", " "))
