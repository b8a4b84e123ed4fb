"""The coding agent's server and a page in a browser; both live as long as the tests of this folder run."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from ..console.conftest import browser
from .coding_client import USERS, CodingSite, User

__all__ = ["browser"]
_names = itertools.cycle(USERS[:-2])  # the last two are the other users of a test


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodingSite]:
    site = CodingSite(tmp_path_factory.mktemp("coding_agent"))
    yield site
    site.close()


@pytest.fixture
def user(site: CodingSite) -> Iterator[User]:
    """A user with an empty folder of its own."""
    with site.user(next(_names)) as user:
        for left in user.folder.iterdir():  # by the test before; a command may leave a folder, such as __pycache__
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        yield user


@pytest.fixture(scope="package")
def window(browser: Browser) -> Iterator[tuple[Page, list[str]]]:
    """A page, and what went wrong in it: scripts that failed, and what the content security policy stopped."""
    context = browser.new_context(viewport={"width": 1000, "height": 900})
    context.set_default_timeout(20_000)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if "Content Security" in message.text else None)
    yield page, problems
    context.close()


@pytest.fixture
def page(window: tuple[Page, list[str]]) -> Iterator[Page]:
    """The page, signed out. Opening one takes longer than most of the tests."""
    page, problems = window
    page.context.clear_cookies()
    yield page
    assert not problems, problems
