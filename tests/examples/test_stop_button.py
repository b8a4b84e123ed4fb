"""The web app of the tutorial, with a real server, a real browser and a fake provider."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser

from ..docs.pages import ROOT, blocks
from ..support.fake_provider import environment, fake_provider, say_next

pytestmark = pytest.mark.promise("P1", "P3")
BAKERY = ROOT / "examples/stop_button/bakery.py"
STALLED = {"text": "First you need ", "stalls": True}


class Bakery:
    def __init__(self, url: str, provider: str) -> None:
        self.url = url
        self._provider = provider

    def model_says(self, *script: dict[str, object]) -> None:
        say_next(self._provider, list(script))


@pytest.fixture(scope="module")
def bakery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bakery]:
    command = [sys.executable, "-m", "uvicorn", "bakery:app", "--app-dir", str(BAKERY.parent), "--port", "0"]
    with (
        fake_provider() as provider,
        subprocess.Popen(
            command,
            cwd=tmp_path_factory.mktemp("bakery"),
            env={**os.environ, **environment(provider)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stderr is not None
        try:
            found = next(filter(None, (re.search(r"running on (http://\S+)", line) for line in process.stderr)))
            yield Bakery(found[1], provider)
        finally:
            process.terminate()
            process.stderr.read()


def test_the_stop_button_stops_the_answer_and_shows_the_receipt(bakery: Bakery, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(bakery.url)
    bakery.model_says(STALLED, {"text": "Flour."})
    page.fill("input", "How do I make a sourdough?")
    page.click("text=Send")
    page.get_by_text("First you need").wait_for()
    page.click("text=Stop")
    page.get_by_text("was stopped (user: the Stop button)").wait_for()
    page.fill("input", "What do I need?")
    page.click("text=Send")
    page.get_by_text("Flour.").wait_for()
    page.close()


def test_a_user_who_leaves_stops_the_answer(bakery: Bakery) -> None:
    bakery.model_says(STALLED)
    with httpx2.Client(base_url=bakery.url, trust_env=False) as client:
        with client.stream("POST", "/chat/bob", json={"prompt": "How do I make a sourdough?"}) as answer:
            assert next(answer.iter_text()).startswith("First")
        assert "was stopped (disconnect" in client.post("/stop/bob").json()["receipt"]


def test_the_tutorial_shows_the_file() -> None:
    page = (ROOT / "docs/tutorial.md").read_text()
    shown = next(block.body for block in blocks(page) if "app = FastAPI()" in block.body)
    assert shown[shown.index("app = FastAPI()") :] in Path(BAKERY).read_text()
