"""Texts that have as many tokens as any, and tools of which a provider writes out little: still in the interval."""

from __future__ import annotations

import time

import pytest

from quiesce import Conversation
from quiesce.messages import Text, UserMessage
from quiesce.models.base import ModelRequest, ToolSpec
from quiesce.usage.estimate.calibration import Calibration
from quiesce.usage.estimate.content import Kind, TextPiece
from quiesce.usage.estimate.estimator import UsageEstimator
from quiesce.usage.estimate.ratio import TokenRatio

from .billed_input import counter
from .held_out_requests import STAND_INS, harmony
from .test_input_interval import sent

pytestmark = pytest.mark.promise("P6")
pytest.importorskip("splintr")
DENSE = {
    "hexadecimal": "\n".join(f"{each}, 0x{each * 0x9E3779B97F4A7C15 % 2**64:016x}" for each in range(700, 740)),
    "numbers": " ".join(f"{each}.{each * 37 % 100} {each * 7}-{each}" for each in range(60)),
    "Persian": "گذرواژه‌ها چهار پیچ و ژرف‌اند، یک پیک گیج چیزی می‌گوید و پنج گچ‌پژ می‌چیند. " * 4,  # noqa: RUF001
    "Armenian": "Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ։ " * 4,  # noqa: RUF001
    "Syriac": "ܟܠ ܒܪܢܫܐ ܒܪܝܠܗ ܚܐܪܐ ܘܒܪܒܪ ܓܘ ܐܝܩܪܐ. " * 4,
}


@pytest.mark.parametrize("name", DENSE)
def test_a_dense_text_is_in_the_interval_of_a_model_without_a_vocabulary(name: str) -> None:
    text = DENSE[name]
    figure = UsageEstimator("bedrock:amazon.nova-pro-v1:0").input(
        Conversation(), sent(ModelRequest((UserMessage((Text(text),)),)))
    )
    assert figure.high is not None
    # What may be added beside the text is in the interval too, and must not make up for it here.
    beside = 16 + 400
    assert max(counter(each)(text) for each in STAND_INS) <= figure.high - beside


def test_definitions_that_are_only_referred_to_need_not_be_billed() -> None:
    """In OpenAI's own form of tools, `$ref` is `any`."""
    words = {"type": "string", "description": "One of the many words that nobody writes out for a model. " * 30}
    definitions = {f"Part{number}": {"type": "object", "properties": {"name": words}} for number in range(8)}
    fields = {f"part{number}": {"$ref": f"#/$defs/Part{number}"} for number in range(8)}
    tool = ToolSpec("build", "Builds it.", {"type": "object", "properties": fields, "$defs": definitions})
    request = ModelRequest((UserMessage((Text("Build."),)),), None, (tool,))
    figure = UsageEstimator("openai-chat:gpt-4o").input(Conversation(), sent(request))
    assert figure.low <= harmony(counter("o200k_base"), request.tools)


@pytest.mark.parametrize("learnt", [False, True])
@pytest.mark.parametrize("parts", [1, 150])
@pytest.mark.parametrize("words", ["some words ", "it's another word "])
def test_texts_that_no_model_takes_are_bounded_by_a_look_at_their_beginning(
    words: str, parts: int, learnt: bool
) -> None:
    """They are estimated in one step of the event loop."""
    calibration = Calibration()
    if learnt:
        calibration.learn_ratio("m", f"{Kind.PROSE}/bytes", 1000, 300)
    ratio = TokenRatio("m", None, calibration)

    def bounded(size: int) -> float:
        text = words * (size // len(words) // parts)
        pieces = [TextPiece(Kind.PROSE, text)] * parts
        begun = time.thread_time()
        span = ratio.total(pieces)
        took = time.thread_time() - begun
        assert span.high is not None
        assert parts <= span.low < span.value < span.high <= size + 2 * parts
        return took

    usual = min(bounded(1 << 20) for _ in range(3))
    assert min(bounded(8 << 20) for _ in range(3)) < 4 * usual
