"""A browser and a server for the console's tests; both live as long as the tests of this folder run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from .browser import ARGUMENTS, find_chromium

ROOT: Final = Path(__file__).parents[2]


class Site:
    """The server's process."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.console.site", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        direct, wired = self._process.stdout.readline().split()
        self.url: Final = f"http://127.0.0.1:{direct}/"
        self.wired: Final = f"http://127.0.0.1:{wired}/"

    def tell(self, command: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "ok\n"

    def close(self) -> None:
        try:
            self._process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


@pytest.fixture(scope="package")
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture(scope="package")
def keyed_site() -> Iterator[Site]:
    site = Site("--keys")
    yield site
    site.close()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("THE CONSOLE IS NOT TESTED: no chromium here (apt-get install chromium, or set CHROMIUM)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    context.set_default_timeout(20_000)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that fails its test when a script fails, or when the content security policy stopped something."""
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if "Content Security" in message.text else None)
    yield page
    assert not problems, problems
