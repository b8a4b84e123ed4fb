"""The story of a server that dies in the middle of an answer, and of the one after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from .conftest import Site
from .console import answer, prompt, run_state, wait_for_run_after

pytestmark = [pytest.mark.promise("P4", "P9"), pytest.mark.timeout(180)]


def test_a_run_is_continued_after_its_server_was_killed(
    page: Page, new_site: Callable[..., Site], tmp_path: Path
) -> None:
    first = new_site(f"--store={tmp_path / 's.db'}")
    page.goto(first.url)
    run_id = prompt(page, "stream a story")
    answer(page, "Nobody came")
    first.kill()
    expect(page.locator("#connection")).to_contain_text("Connection lost")
    second = new_site(f"--store={tmp_path / 's.db'}")
    page.goto(f"{second.url}#/runs/{run_id}")
    run_state(page, "Crashed")
    answer(page, "Nobody came")  # what was read is kept
    expect(page.locator(".tool[data-state=running]")).to_have_count(0)
    expect(page.locator(f"a.session-row[href='#/runs/{run_id}']")).to_contain_text("Crashed")
    page.locator("#action-continue").click()
    wait_for_run_after(page, run_id)
    run_state(page, "Finished")
    page.goto(f"{second.url}#/audit")
    rows = page.locator(".audit tbody tr")
    expect(rows).to_have_count(2)  # the start and the continuation
    expect(rows.last).to_contain_text("stream a story")
