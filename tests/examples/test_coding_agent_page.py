"""The page of the coding agent in a real browser: stops, decisions, and taking it all back."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from .coding_client import CodingSite, User, edits, running_with, write_files

pytestmark = pytest.mark.promise("P1", "P4")
Ask = Callable[..., None]


@pytest.fixture
def ask(page: Page, site: CodingSite, user: User) -> Ask:
    """Sign in, and send a script as the prompt."""
    page.goto(site.url)
    page.get_by_label("Your name").fill(user.name)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("status")).to_have_text("Nothing is running.")

    def send(*answers: object) -> None:
        page.get_by_label("What should be done?").fill(json.dumps(answers))
        page.get_by_role("button", name="Send").click()

    return send


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def approve(page: Page, times: int = 1) -> None:
    """Approve one call after the other. Each is a new question, so the click is not made on an answered one."""
    for _ in range(times):
        box = page.locator(".approval")
        expect(box).to_have_count(1)
        asked = box.get_attribute("data-id")
        button(page, "Approve").click()
        expect(page.locator(f'.approval[data-id="{asked}"]')).to_have_count(0)


def headline(page: Page) -> Locator:
    return page.locator("#receipt h2")


def test_approve_shows_the_diff_before_and_after(page: Page, ask: Ask, user: User) -> None:
    write_files(user.folder, 1)
    ask(*edits(1), [("reviewer", {"prompt": json.dumps(["It is good."])})], "It is new.")
    expect(page.locator(".approval .removed")).to_have_text("-old 0")
    expect(page.locator(".approval .added")).to_have_text("+new 0")
    expect(page.get_by_role("status")).to_have_text("Waiting for you: one decision.")
    assert (user.folder / "file0.txt").read_text() == "old 0\n"
    approve(page)
    expect(page.locator(".call details .added")).to_have_text("+new 0")
    expect(page.locator(".answer").last).to_have_text("It is new.")
    expect(headline(page)).to_have_text("Finished. Nothing is left running.")
    assert (user.folder / "file0.txt").read_text() == "new 0\n"


def test_deny(page: Page, ask: Ask, user: User) -> None:
    write_files(user.folder, 1)
    ask(*edits(1), "As you like.")
    button(page, "Deny").click()
    expect(page.locator(".call .state")).to_have_text("not run")
    expect(page.locator(".answer").last).to_have_text("As you like.")
    assert (user.folder / "file0.txt").read_text() == "old 0\n"


def test_edit_the_arguments(page: Page, ask: Ask, user: User) -> None:
    """Arguments that cannot be used are refused in words, and the call is still asked about."""
    write_files(user.folder, 1)
    ask(*edits(1), "It is better.")
    button(page, "Edit").click()
    arguments = page.get_by_label("Arguments")
    for wrong, words in (('{"path": ', "This is not JSON"), ('{"path": "file0.txt"}', "edits")):
        arguments.fill(wrong)
        button(page, "Approve with these changes").click()
        expect(page.locator(".approval [role=alert]")).to_contain_text(words)
    arguments.fill(json.dumps({"path": "file0.txt", "edits": [{"old": "old", "new": "better"}]}))
    button(page, "Approve with these changes").click()
    expect(page.locator(".call details .added")).to_have_text("+better 0")
    expect(headline(page)).to_contain_text("Finished.")
    assert (user.folder / "file0.txt").read_text() == "better 0\n"


def test_stop_in_an_edit(page: Page, ask: Ask, user: User) -> None:
    """The stop waits for the edit, and the file is what the receipt says."""
    write_files(user.folder, 1)
    gate = user.folder.with_suffix(".gate")
    os.mkfifo(gate)
    ask(*edits(1), "This is not said.")
    approve(page)
    with gate.open("w"):  # the edit has begun, and waits
        button(page, "Stop").click()
        expect(page.get_by_role("status")).to_have_text("Stopping: waiting for edit_file …")
    expect(headline(page)).to_have_text("Stopped. Nothing is left running.")
    expect(page.locator(".call .state")).to_have_text("done")
    expect(page.get_by_text("This is not said.", exact=True)).to_have_count(0)
    assert (user.folder / "file0.txt").read_text() == "new 0\n"
    gate.unlink()


def test_stop_in_a_test_run(page: Page, ask: Ask, user: User) -> None:
    marker = "4711.101"
    (user.folder / "test_slow.py").write_text(
        "import time, unittest\n\nclass Slow(unittest.TestCase):\n"
        "    def test_it(self):\n        print('testing', flush=True)\n        time.sleep(4711)\n"
    )
    ask([("shell", {"command": f"MARK={marker} python3 -m unittest test_slow -k it -k {marker}"})], "This is not said.")
    approve(page)
    expect(page.locator(".call pre")).to_contain_text("testing")
    button(page, "Stop").click()
    expect(headline(page)).to_have_text("Stopped. Nothing is left running.")
    expect(page.locator("#receipt li")).to_contain_text("stopped")
    assert running_with(marker) == []


def test_stop_in_a_command_with_children(page: Page, ask: Ask, user: User) -> None:
    """Children, grandchildren, one in a session of its own and one that ignores TERM: none is left."""
    marker = "4711.102"
    command = (
        f"sleep {marker} & setsid sleep {marker} & (sleep {marker} &) ; "
        f"sh -c \"trap '' TERM; echo ready; while :; do sleep {marker}; done\""
    )
    ask([("shell", {"command": command})], "This is not said.")
    approve(page)
    expect(page.locator(".call pre")).to_contain_text("ready")
    assert len(running_with(f"sleep {marker}")) >= 4
    button(page, "Stop").click()
    expect(headline(page)).to_have_text("Stopped. Nothing is left running.")
    assert running_with(marker) == []


def test_stop_and_take_it_all_back(page: Page, ask: Ask, user: User) -> None:
    """After five approved edits, one of which the user has changed since; the sixth is asked about."""
    write_files(user.folder, 6)
    ask(*edits(6))
    approve(page, 5)
    expect(page.locator(".approval")).to_have_count(1)
    assert [(user.folder / f"file{n}.txt").read_text() for n in range(5)] == [f"new {n}\n" for n in range(5)]
    (user.folder / "file2.txt").write_text("by hand\n")
    button(page, "Stop and take it all back").click()
    expect(headline(page)).to_have_text("4 of 5 changes taken back. 1 could not be. Nothing is left running.")
    told = page.locator("#receipt li")
    expect(told.filter(has_text="taken back")).to_have_text(
        [f"edit file file{n}.txt: taken back." for n in (4, 3, 1, 0)]
    )
    expect(told.filter(has_text="changed since")).to_have_text(re.compile(r"^edit file file2\.txt: left as it is \("))
    expect(page.locator(".approval")).to_have_count(0)
    left = [(user.folder / f"file{n}.txt").read_text() for n in range(6)]
    assert left == ["old 0\n", "old 1\n", "by hand\n", "old 3\n", "old 4\n", "old 5\n"]


def test_take_it_all_back_in_the_middle_and_after_the_end(page: Page, ask: Ask, user: User) -> None:
    write_files(user.folder, 2)
    ask(*edits(2), "stall")
    approve(page, 2)
    expect(page.locator(".answer")).to_have_text("I think about it. ")
    button(page, "Stop and take it all back").click()
    expect(headline(page)).to_have_text("2 of 2 changes taken back. Nothing is left running.")
    assert (user.folder / "file1.txt").read_text() == "old 1\n"
    ask(*edits(1), [("shell", {"command": "rm file1.txt"})])
    approve(page, 2)
    expect(headline(page)).to_contain_text("Finished.")
    assert not (user.folder / "file1.txt").exists()
    button(page, "Take it all back").click()
    expect(headline(page)).to_have_text("2 of 2 changes taken back. Nothing is left running.")
    expect(button(page, "Take it all back")).to_be_disabled()
    assert [(user.folder / f"file{n}.txt").read_text() for n in range(2)] == ["old 0\n", "old 1\n"]


@pytest.mark.proof
def test_a_reload_shows_the_same(page: Page, ask: Ask, user: User) -> None:
    write_files(user.folder, 2)
    ask(*edits(2), "Both are new.")
    approve(page)
    expect(page.locator(".approval")).to_have_count(1)
    before = page.locator("#task").inner_text()
    page.reload()
    expect(page.locator(".approval")).to_have_count(1)
    assert page.locator("#task").inner_text() == before
    approve(page)
    expect(headline(page)).to_contain_text("Finished.")


@pytest.mark.proof
@pytest.mark.leaves("processes")  # the next server, which belongs to all tests
def test_kill_9_while_the_page_is_open(page: Page, ask: Ask, site: CodingSite, user: User) -> None:
    """The page finds the new process by itself; the approval is answered there, and everything can be taken back."""
    write_files(user.folder, 2)
    ask(*edits(2), "stall")
    approve(page)
    expect(page.locator(".approval")).to_have_count(1)
    site.kill()
    approve(page)
    expect(page.locator(".answer")).to_have_text("I think about it. ")
    site.kill()
    expect(headline(page)).to_contain_text("The server stopped in the middle.")
    button(page, "Take it all back").click()
    expect(headline(page)).to_contain_text("2 of 2 changes taken back.")
    assert [(user.folder / f"file{n}.txt").read_text() for n in range(2)] == ["old 0\n", "old 1\n"]


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.proof)])
def test_the_page_is_accessible(page: Page, ask: Ask, user: User, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    write_files(user.folder, 2)
    ask(*edits(2))
    approve(page)
    button(page, "Edit").click()
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    button(page, "Stop and take it all back").click()
    expect(headline(page)).to_contain_text("1 of 1 changes taken back.")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.proof
def test_two_users_in_two_browsers(page: Page, ask: Ask, browser: Browser, site: CodingSite, user: User) -> None:
    """The same prompt at the same time: each decides about its own call, in its own folder."""
    with site.user("user11") as other:
        for each in (user, other):
            write_files(each.folder, 1)
        context = browser.new_context()
        second = context.new_page()
        second.goto(site.url)
        second.get_by_label("Your name").fill(other.name)
        button(second, "Sign in").click()
        expect(second.get_by_role("status")).to_have_text("Nothing is running.")
        second.get_by_label("What should be done?").fill(json.dumps([*edits(1), "stall"]))
        button(second, "Send").click()
        ask(*edits(1), "Mine is new.")
        expect(second.locator(".approval")).to_have_count(1)
        approve(page)
        expect(headline(page)).to_contain_text("Finished.")
        assert [(each.folder / "file0.txt").read_text() for each in (user, other)] == ["new 0\n", "old 0\n"]
        approve(second)
        expect(second.locator(".answer")).to_have_text("I think about it. ")
        button(page, "Take it all back").click()
        expect(headline(page)).to_contain_text("1 of 1 changes taken back.")
        assert [(each.folder / "file0.txt").read_text() for each in (user, other)] == ["old 0\n", "new 0\n"]
        button(second, "Stop").click()
        expect(headline(second)).to_have_text("Stopped. Nothing is left running.")
        context.close()


@pytest.mark.proof
def test_a_task_of_sixty_turns_in_the_page(page: Page, ask: Ask, user: User) -> None:
    write_files(user.folder, 60)
    editing = list(edits(60))
    ask(*(editing[n] if n % 5 == 0 else [("read_file", {"path": f"file{n}.txt"})] for n in range(59)), "All done.")
    approve(page, 12)
    expect(page.locator(".answer").last).to_have_text("All done.")
    expect(headline(page)).to_contain_text("Finished.")
    expect(page.locator(".call")).to_have_count(59)
    button(page, "Take it all back").click()
    expect(headline(page)).to_contain_text("12 of 12 changes taken back.")
    assert {(user.folder / f"file{n}.txt").read_text() for n in range(60)} == {f"old {n}\n" for n in range(60)}


@pytest.mark.proof
def test_a_result_of_two_megabytes_in_the_page(page: Page, ask: Ask, user: User) -> None:
    ask([("shell", {"command": "seq 1 290000"})], "Much.")
    approve(page)
    expect(page.locator(".answer").last).to_have_text("Much.")
    expect(headline(page)).to_contain_text("Finished.")
    assert len(page.locator("#task").inner_text()) < 100_000


@pytest.mark.proof
@pytest.mark.leaves("processes")  # the next server, which belongs to all tests
def test_a_deploy_while_the_page_is_open(page: Page, ask: Ask, site: CodingSite, user: User) -> None:
    """The approval that waits is answered in the new process, and everything can be taken back there."""
    write_files(user.folder, 2)
    ask(*edits(2), "Both are new.")
    approve(page)
    expect(page.locator(".approval")).to_have_count(1)
    site.deploy()
    approve(page)
    expect(page.locator(".answer").last).to_have_text("Both are new.")
    button(page, "Take it all back").click()
    expect(headline(page)).to_contain_text("2 of 2 changes taken back.")
    assert [(user.folder / f"file{n}.txt").read_text() for n in range(2)] == ["old 0\n", "old 1\n"]
