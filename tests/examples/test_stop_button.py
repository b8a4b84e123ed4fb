"""The web app of the tutorial, with a real server, a real browser and a fake provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser

from ..docs.pages import ROOT, blocks
from .serving import Served, served

pytestmark = pytest.mark.promise("P1", "P3")
BAKERY = ROOT / "examples/stop_button/bakery.py"
STALLED = {"text": "First you need ", "stalls": True}


@pytest.fixture(scope="module")
def bakery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(BAKERY, tmp_path_factory.mktemp("bakery")) as site:
        yield site


def test_the_stop_button_stops_the_answer_and_shows_the_receipt(bakery: Served, browser: Browser) -> None:
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


def test_a_user_who_leaves_stops_the_answer(bakery: Served) -> None:
    bakery.model_says(STALLED)
    with httpx2.Client(base_url=bakery.url, trust_env=False) as client:
        with client.stream("POST", "/chat/bob", json={"prompt": "How do I make a sourdough?"}) as answer:
            assert next(answer.iter_text()).startswith("First")
        assert "was stopped (disconnect" in client.post("/stop/bob").json()["receipt"]


def test_the_tutorial_shows_the_file() -> None:
    page = (ROOT / "docs/tutorial.md").read_text()
    shown = next(block.body for block in blocks(page) if "app = FastAPI()" in block.body)
    assert shown[shown.index("app = FastAPI()") :] in Path(BAKERY).read_text()
