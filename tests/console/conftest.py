"""A browser and a server for the console's tests; both live as long as the tests of this folder run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx2
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

    def kill(self) -> None:
        """As a crash: nothing is settled, and nothing is said."""
        self._process.kill()
        self._process.communicate()

    def close(self) -> None:
        if self._process.returncode is not None:
            return
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


@pytest.fixture
def approvals_end(site: Site) -> Iterator[None]:
    """What a test approves in advance ends with it: the other tests are asked."""
    yield
    with httpx2.Client(base_url=site.url) as client:
        for approval in client.get("approvals").json()["approvals"]:
            client.delete(f"approvals/{approval['id']}")


@pytest.fixture
def new_site() -> Iterator[Callable[..., Site]]:
    """Starts servers for one test."""
    started: list[Site] = []

    def start(*arguments: str) -> Site:
        started.append(Site(*arguments))
        return started[-1]

    yield start
    for site in started:
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


@pytest.fixture(scope="package")
def shared_context(browser: Browser) -> Iterator[BrowserContext]:
    # Dots that breathe are painted sixty times a second, which is a seventh of all that these tests take.
    context = browser.new_context(viewport={"width": 1200, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(20_000)
    yield context
    context.close()


@pytest.fixture
def context(shared_context: BrowserContext) -> Iterator[BrowserContext]:
    """One for all tests: it keeps the console's files. What a page keeps is its own, and is gone with it."""
    yield shared_context
    for page in shared_context.pages:
        page.close()
    shared_context.clear_permissions()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that fails its test when a script fails, or when the content security policy stopped something."""
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if "Content Security" in message.text else None)
    yield page
    assert not problems, problems
