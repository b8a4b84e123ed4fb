"""A pytest plugin: the collected tests, each with the promises and cases that it names, before any is deselected.

A test of the project itself, or of a feature that no promise is about, has `house` or `feature` instead of promises. A
mark on a test takes the place of its module's: it says what this test proves. As a plugin of its own
(`-p tests.collected_marks --collect-only`) it prints them.
"""

from pathlib import Path

import pytest

LINES: pytest.StashKey[list[str]] = pytest.StashKey()
HERE = Path(__file__).parent
WITHOUT_PROMISE = ("house", "feature")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[LINES] = [line_of(item) for item in items]


def pytest_collection_finish(session: pytest.Session) -> None:
    if "tests.collected_marks" in session.config.option.plugins:
        print(*session.config.stash[LINES], sep="\n")


def line_of(item: pytest.Item) -> str:
    closest = next((mark for mark in item.iter_markers() if mark.name in ("promise", *WITHOUT_PROMISE)), None)
    names = () if closest is None else closest.args if closest.name == "promise" else (closest.name,)
    promises = " ".join(sorted(set(names)))
    cases = " ".join(sorted({name for mark in item.iter_markers("case") for name in mark.args}))
    return f"marks\t{item.nodeid}\t{promises}\t{cases}".replace("\n", " ")


def all_lines(config: pytest.Config) -> list[str] | None:
    """The lines of all tests; None when this session has collected only some of them."""
    whole = [Path(config.rootpath, argument).resolve() for argument in config.args] == [HERE]
    return config.stash.get(LINES, None) if whole and not config.getoption("lf", False) else None
