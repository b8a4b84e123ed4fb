"""The pages use the words that a reader searches for (supervisor, queue, fork server), not the old metaphors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from .pages import PAGES, ROOT

pytestmark = pytest.mark.house

# What a page must not say, and what to write instead.
INSTEAD: Final = {
    r"whoever|nobody|somebody": "name the thing: the process, the client, the reader",
    r"keepers?": "supervisor",
    r"nursery|nurseries": "fork server, or task group",
    r"turnstiles?": "ConversationLock",
    r"letters?": "queued prompt",
    r"errands?": "task",
    r"parcels?": "function transfer",
    r"desks?": "registry",
    r"tenures?": "lease",
    r"lookouts?": "subscriber",
    r"strays?": "abandoned task",
    r"legs?": "work token",
    r"guests?": "waiting process",
    r"twins?": "fork",
    r"reapers?": "kill tree",
    r"tally|tallies": "budget, or usage",
    r"(?<!of )courses?": "run",
}
FORBIDDEN: Final = {re.compile(rf"(?<![\w])(?:{word})(?![\w])", re.IGNORECASE): use for word, use in INSTEAD.items()}

# (page, word): why this page may use it.
EXCEPTIONS: Final[dict[tuple[str, str], str]] = {}

PLAIN: Final = [page for page in PAGES if page == ROOT / "README.md" or page.is_relative_to(ROOT / "docs")]


def found(name: str, text: str) -> dict[tuple[str, str], str]:
    """The forbidden words of a page, its file name included, with what to write instead."""
    everything = f"{Path(name).stem}\n{text}"
    return {
        (name, match[0].lower()): f"line {everything.count(chr(10), 0, match.start())}: {match[0]!r} -> {use}"
        for pattern, use in FORBIDDEN.items()
        for match in pattern.finditer(everything)
    }


def found_on(page: Path) -> dict[tuple[str, str], str]:
    return found(str(page.relative_to(ROOT)), page.read_text())


@pytest.mark.parametrize("page", PLAIN, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_uses_plain_words(page: Path) -> None:
    assert [what for key, what in found_on(page).items() if key not in EXCEPTIONS] == []


def test_every_exception_has_a_reason_and_is_needed() -> None:
    used = {key for page in PLAIN for key in found_on(page)}
    assert all(reason.strip() for reason in EXCEPTIONS.values())
    assert EXCEPTIONS.keys() - used == set()


@pytest.mark.parametrize(
    "text", ["Whoever asks", "Nobody waits", "a Keeper", "`letters.admission`", "two\nlegs", "the course ends"]
)
def test_a_forbidden_word_is_found(text: str) -> None:
    assert found("docs/page.md", text)


def test_a_forbidden_word_in_a_file_name_is_found() -> None:
    assert found("docs/decisions/keepers.md", "A supervisor.")


@pytest.mark.parametrize("text", ["subreaper", "of course", "newsletter", "elegant legacy", "straight"])
def test_other_words_are_not(text: str) -> None:
    assert not found("docs/page.md", text)
