"""The memory of vocabularies is given back on request."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from quiesce.usage import register_vocabulary, unload_vocabularies
from quiesce.usage.estimate.vocabulary import load_vocabulary, vocabulary_of

pytestmark = pytest.mark.feature

# In a process of its own: one that runs other tests keeps freed memory for them.
MEASURE = """
from pathlib import Path
from quiesce.usage import unload_vocabularies
from quiesce.usage.estimate.vocabulary import vocabulary_of

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) // 1024

assert vocabulary_of("openai:gpt-4o") is not None
before = resident()
unload_vocabularies()
print(before - resident())
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc")
def test_the_memory_is_given_back():
    pytest.importorskip("splintr")
    freed = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True, timeout=60)
    assert int(freed.stdout) > 15  # megabytes, of about 40


def test_vocabularies_are_unloaded_and_come_back():
    load_vocabulary("openai:gpt-4o")
    first = vocabulary_of("openai:gpt-4o")
    if first is None:
        pytest.skip("splintr-rs is not installed")
    assert vocabulary_of("openai:gpt-4.1") is first  # shared between models
    expected = first.count("Hello, world.")
    unload_vocabularies()
    assert first.count("Hello, world.") == expected  # who has it counts on


def test_what_a_user_registered_stays():
    register_vocabulary("stays", lambda text: len(text.split()))
    unload_vocabularies()
    found = vocabulary_of("mine", "stays")
    assert found is not None
    assert found.count("two words") == 2
