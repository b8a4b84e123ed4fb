"""Where a recording comes from: what says that a provider sends this, and how that was checked."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Checked(StrEnum):
    """What the source is, and so how far it can be relied on."""

    PACKAGE = "the types of a client library, read in its release on PyPI"
    CODE = "a file in a public repository, read there"
    PAGE = "a page of documentation, read in a stored copy"
    THREAD = "an issue or a pull request, read in a stored copy"
    QUOTED = "programs of others quote it; no page of the vendor was found"
    RECORDED = "streams that others recorded have it; no public source was found"
    ASSUMED = "no public source was found; it follows from what is documented beside it"


CONFIRMED = frozenset({Checked.PACKAGE, Checked.CODE, Checked.PAGE, Checked.THREAD})


@dataclass(frozen=True)
class Source:
    """One source.

    where    an address, `owner/repository: path`, or `distribution version: path`
    words    what stands in that file of a package
    note     what it does not say
    """

    where: str
    checked: Checked
    words: tuple[str, ...] = ()
    note: str = ""

    @property
    def is_confirmed(self) -> bool:
        return self.checked in CONFIRMED


def package(where: str, *words: str, note: str = "") -> Source:
    """A file of a release on PyPI: `openai 3.49.0: openai/types/...`."""
    return Source(where, Checked.PACKAGE, words, note)


def code(where: str, note: str = "") -> Source:
    return Source(where, Checked.CODE, note=note)


def page(where: str, note: str = "") -> Source:
    return Source(where, Checked.PAGE, note=note)


def thread(where: str, note: str = "") -> Source:
    return Source(f"https://github.com/{where}", Checked.THREAD, note=note)


def quoted(note: str) -> Source:
    return Source("", Checked.QUOTED, note=note)


def recorded(note: str) -> Source:
    return Source("", Checked.RECORDED, note=note)


def assumed(note: str) -> Source:
    return Source("", Checked.ASSUMED, note=note)
