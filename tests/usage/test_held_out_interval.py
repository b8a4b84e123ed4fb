"""How often the input of a request lies in its interval, for requests that the estimator was not tuned on.

`python -m tests.usage.test_held_out_interval [held-out | development] [requests]` prints the table.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass, field
from random import Random

import pytest

from quiesce import Conversation
from quiesce.events import UsageDelta
from quiesce.messages import AssistantMessage
from quiesce.models.base import ModelRequest
from quiesce.usage.estimate.estimator import UsageEstimator
from quiesce.usage.estimate.figures import SentRequest
from quiesce.usage.estimate.received import ReceivedAnswer
from quiesce.usage.estimate.vocabulary import vocabulary_of
from quiesce.usage.figure import Figure

from .billed_input import Vendor
from .held_out_requests import RequestMaker, held_out_vendors
from .real_texts import Half
from .test_input_interval import sent

pytestmark = [pytest.mark.promise("P6"), pytest.mark.proof]
REQUESTS = 400


@dataclass
class Score:
    """Intervals against what was billed; those that are open above are counted apart."""

    held: int = 0
    count: int = 0
    open_above: int = 0
    widths: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    misses: list[tuple[str, int, Figure, int]] = field(default_factory=list)

    def add(self, vocabulary: str, seed: int, figure: Figure, truth: int) -> None:
        assert figure.value is not None
        self.count += 1
        if figure.holds(truth):
            self.held += 1
        else:
            self.misses.append((vocabulary, seed, figure, truth))
        if figure.high is None:
            self.open_above += 1
            return
        self.widths.append((figure.high - figure.low) / figure.value)
        self.errors.append(abs(figure.value - truth) / truth)

    def line(self) -> str:
        middle, most = statistics.median(self.widths), statistics.quantiles(self.widths, n=20)[-1]
        return (
            f"{self.held / self.count:7.2%} of {self.count:5} | {self.open_above / self.count:5.1%} | "
            f"{middle:5.2f} {most:5.2f} | {statistics.median(self.errors):6.1%}"
        )


def measure(vendors: list[Vendor], half: Half, count: int) -> tuple[Score, Score]:
    """The first request of an agent, of which nothing is known; and one after a report for its beginning."""
    first, later = Score(), Score()
    vocabulary_of(vendors[0].model, vendors[0].tokenizer)
    for seed in range(count):
        request = RequestMaker(seed, half, vendors[0]).request()
        figure = UsageEstimator(vendors[0].model, tokenizer=vendors[0].tokenizer).input(Conversation(), sent(request))
        begun = _answered(seed, request)
        for vendor in vendors:
            billed = vendor.bills(request)
            first.add(vendor.vocabulary, seed, figure, billed)
            if begun:
                later.add(vendor.vocabulary, seed, _after_a_report(vendor, request, begun), billed)
    return first, later


def _answered(seed: int, request: ModelRequest) -> int:
    """How many messages were in an earlier request: up to one of the answers."""
    answers = [place for place, each in enumerate(request.messages) if isinstance(each, AssistantMessage)]
    return Random(seed).choice(answers) if answers else 0


def _after_a_report(vendor: Vendor, request: ModelRequest, begun: int) -> Figure:
    estimator, conversation = UsageEstimator(vendor.model, tokenizer=vendor.tokenizer), Conversation()
    before = ModelRequest(
        request.messages[:begun], request.instructions, request.tools, output_schema=request.output_schema
    )
    whole = sent(request)
    prefix = SentRequest(request.messages[:begun], whole.preamble, None)
    report = UsageDelta(vendor.bills(before), 10, final=True)
    estimator.record(conversation, prefix, ReceivedAnswer(report, (), complete=True))
    return estimator.input(conversation, whole)


@pytest.mark.parametrize("name", held_out_vendors())
def test_the_truth_is_in_the_interval_of_requests_that_were_not_tuned_on(name: str) -> None:
    for score in measure(held_out_vendors()[name], "held-out", REQUESTS):
        assert score.held >= 0.99 * score.count, score.misses[:3]


if __name__ == "__main__":
    half: Half = "development" if "development" in sys.argv else "held-out"
    wanted = next((int(each) for each in sys.argv if each.isdigit()), REQUESTS)
    print(f"{half + ': inside | open above | width p50 p95 | error':<34}")
    for name, vendors in held_out_vendors().items():
        for label, score in zip(("first", "later"), measure(vendors, half, wanted), strict=True):
            print(f"{name:<34} {label} {score.line()}", flush=True)
            for miss in score.misses[:3]:
                print("      missed:", *miss)
