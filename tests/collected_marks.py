"""A pytest plugin that prints each collected test with the promises and cases that it names.

A mark on a test takes the place of its module's: it says what this test proves.
"""

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    for item in session.items:
        closest = item.get_closest_marker("promise")
        promises = " ".join(sorted(set(closest.args if closest else ())))
        cases = " ".join(sorted({name for mark in item.iter_markers("case") for name in mark.args}))
        print(f"marks\t{item.nodeid}\t{promises}\t{cases}".replace("\n", " "))
