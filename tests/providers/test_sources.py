"""Each recording says where its fact comes from, and how that was checked.

`python -m tests.providers.test_sources` prints the list as JSON, and the numbers. With a folder in which packages are
unpacked, one directory for each, it reads those too: clients of vendors that are not installed here.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from sysconfig import get_path

import pytest

from .recordings import PROVIDERS
from .recordings.endings import ENDINGS
from .recordings.source import Checked, Source
from .test_failures import UNUSUAL
from .test_packets import WHOLE

pytestmark = pytest.mark.house
KINDS = ("answer", "calls", "reasoning", "mid_stream_error")


def recordings() -> Iterator[tuple[str, Source | None]]:
    """Every recording, by its name, with its source."""
    for provider in PROVIDERS:
        for kind in (*KINDS, *provider.errors):
            yield f"{provider}: {kind}", provider.sources.get(kind)
    for ending in ENDINGS:
        yield str(ending), ending.source
    for server, status, body, _, source in UNUSUAL:
        yield f"{server}: {status}, {body}", source
    for provider, source, _ in WHOLE:
        yield f"{provider}: not streamed", source


RECORDINGS = dict(recordings())


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_has_a_source(name: str) -> None:
    source = RECORDINGS[name]
    assert source is not None, "say what the source is, or that there is none"
    assert source.where if source.is_confirmed else source.note, "an unconfirmed source says what is not known"
    assert not source.where.startswith("http:")
    if source.checked is Checked.PACKAGE:
        assert source.words


def test_no_two_recordings_have_the_same_name() -> None:
    assert len(RECORDINGS) == len(list(recordings()))


def words_missing(source: Source, folder: Path) -> list[str]:
    """The words that are not in a file of a package."""
    path = folder / source.where.partition(": ")[2]
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text("utf-8")
    return [words for words in source.words if words not in " ".join(text.split()) and words not in text]


def installed() -> dict[str, Source]:
    """The sources in packages that are installed here."""
    packages = (each for each in RECORDINGS.values() if each is not None and each.checked is Checked.PACKAGE)
    here = Path(get_path("purelib"))
    return {each.where: each for each in packages if (here / each.where.partition(": ")[2]).exists()}


def test_clients_of_three_vendors_are_read() -> None:
    assert {where.partition(" ")[0] for where in installed()} >= {"openai", "anthropic", "botocore"}


@pytest.mark.parametrize("where", installed())
def test_an_installed_client_says_so(where: str) -> None:
    for source in (each for each in RECORDINGS.values() if each is not None and each.where == where):
        assert not words_missing(source, Path(get_path("purelib")))


if __name__ == "__main__":
    for name, source in RECORDINGS.items():
        assert source is not None
        row = {"recording": name, "source": source.where, "checked": source.checked.name, "note": source.note}
        print(json.dumps(row, ensure_ascii=False))
    print(len(RECORDINGS), "recordings:", dict(Counter(each.checked.name for each in RECORDINGS.values() if each)))
    for folder in map(Path, sys.argv[1:]):
        for source in {each for each in RECORDINGS.values() if each is not None and each.checked is Checked.PACKAGE}:
            found = [each for each in folder.iterdir() if (each / source.where.partition(": ")[2]).exists()]
            missing = words_missing(source, found[0]) if found else ["the file"]
            print(source.where, f"lacks {missing}" if missing else "has it")
