"""The scripted model: each step of its answers counts, and what is no step is refused at once."""

from __future__ import annotations

from typing import Any

import pytest

from quiesce import Agent
from quiesce.errors import ConfigurationError, RunError
from quiesce.testing import Say, ScriptedModel

pytestmark = pytest.mark.feature


async def test_a_text_among_the_steps_is_said():
    result = await Agent(ScriptedModel(["One ", Say("two "), "three."])).invoke_async("Count.")
    assert result.text == "One two three."


async def test_an_exception_among_the_steps_is_raised():
    with pytest.raises(RunError, match="broken"):
        await Agent(ScriptedModel(["One ", ValueError("broken")])).invoke_async("Count.")


@pytest.mark.parametrize("wrong", [5, [5], {"text": "hi"}, [["nested"]]])
def test_what_is_no_step_is_refused_at_once(wrong: Any):
    with pytest.raises(ConfigurationError, match="no step"):
        ScriptedModel(wrong)
    with pytest.raises(ConfigurationError, match="no step"):
        ScriptedModel(then=wrong)
