"""The vocabulary of the tests about counting. What a process does that has not loaded it is in `test_first_stop.py`."""

from __future__ import annotations

import pytest

from quiesce.usage.estimate.vocabulary import vocabulary_of


@pytest.fixture(autouse=True)
def _vocabulary() -> None:
    """Load the vocabulary of OpenAI's models, once in a process."""
    vocabulary_of("openai:gpt-4o")
