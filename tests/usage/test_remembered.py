"""What an estimator keeps from one request to the next changes no figure."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quiesce import Conversation
from quiesce.models.base import ModelRequest
from quiesce.usage.estimate.calibration import Calibration
from quiesce.usage.estimate.content import Kind, TextPiece
from quiesce.usage.estimate.estimator import UsageEstimator
from quiesce.usage.estimate.figures import SentRequest
from quiesce.usage.estimate.ratio import TokenRatio
from quiesce.usage.figure import Figure

from .generated_requests import requests

pytestmark = pytest.mark.promise("P6")
MODEL = "bedrock:amazon.nova-pro-v1:0"


def estimate(estimator: UsageEstimator, request: ModelRequest, *, prepared: bool) -> Figure:
    preamble = estimator.preamble(request.instructions, request.tools, request.output_schema)
    conversation, sent = Conversation(), SentRequest(request.messages, preamble)
    if prepared:
        estimator.prepare(conversation, sent)
    return estimator.input(conversation, sent)


@pytest.mark.parametrize("prepared", [False, True])
def test_requests_one_after_the_other_cost_what_each_costs_alone(prepared: bool) -> None:
    estimator = UsageEstimator(MODEL)
    for seed in (1, 1, 2, 3, 3, 1, 4, 5, 4):
        request = requests(seed, images=False, documents=False, encrypted=None)
        assert estimate(estimator, request, prepared=prepared) == estimate(
            UsageEstimator(MODEL), request, prepared=False
        )


def test_a_preamble_is_estimated_again_when_something_was_learnt() -> None:
    estimator, request = UsageEstimator(MODEL), requests(1, images=False, documents=False, encrypted=None)
    before = estimate(estimator, request, prepared=True)
    for kind in Kind:
        estimator.calibration.learn_ratio(MODEL, f"{kind}/bytes", 1000, 300)
    after = estimate(estimator, request, prepared=True)
    assert after != before
    assert after == estimate(UsageEstimator(MODEL, calibration=estimator.calibration), request, prepared=False)


@given(st.text(st.sampled_from("abYZ'09 -\né中"), min_size=1))
@example("a'bC'd'e été's l'Été")
def test_a_text_has_a_token_for_each_of_its_words(text: str) -> None:
    word = r"[A-Za-z]+(?:'[a-z]+)?" if text.isascii() else r"(?<![A-Za-z])(?<![^\x00-\x7f])[A-Za-z]+(?:'[a-z]+)?"
    span = TokenRatio(MODEL, None, Calibration()).total((TextPiece(Kind.PROSE, text),))
    assert span.low == max(1, len(re.findall(word, text)))
