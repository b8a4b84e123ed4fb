"""How often the input of a request lies in the interval that is given for it, and how wide that is.

`python -m tests.usage.test_input_interval` prints the table for 1,600 requests of each vendor. It shows that the
interval holds what the documented framing of each vendor makes of very different contents. It cannot show that a vendor
bills as it documents: for that, requests to the vendors would be needed.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass, field

import pytest

from quiesce import Conversation
from quiesce.events import UsageDelta
from quiesce.messages import UserMessage
from quiesce.models.base import ModelRequest
from quiesce.usage.estimate.content import Preamble
from quiesce.usage.estimate.estimator import UsageEstimator
from quiesce.usage.estimate.figures import SentRequest
from quiesce.usage.estimate.received import ReceivedAnswer
from quiesce.usage.estimate.vocabulary import vocabulary_of
from quiesce.usage.figure import Figure

from .billed_input import VENDORS, Vendor, no_image
from .generated_requests import requests

pytestmark = pytest.mark.promise("P6")
pytest.importorskip("splintr")
REQUESTS = 1600


@dataclass
class Score:
    """The figures of some requests against the truth."""

    held: int = 0
    open_above: int = 0
    widths: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    misses: list[tuple[int, Figure, int]] = field(default_factory=list)

    def add(self, seed: int, figure: Figure, truth: int) -> None:
        if figure.holds(truth):
            self.held += 1
        else:
            self.misses.append((seed, figure, truth))
        if figure.high is None:
            self.open_above += 1
        else:
            self.widths.append((figure.high - figure.low) / truth)
        assert figure.value is not None
        self.errors.append(abs(figure.value - truth) / truth)

    @property
    def count(self) -> int:
        return len(self.errors)

    def line(self) -> str:
        return (
            f"{self.held / self.count:7.2%} | {self.open_above / self.count:6.1%} | "
            f"{statistics.median(self.widths):6.2f} | {statistics.median(self.errors):6.1%}"
        )


def sent(request: ModelRequest, upto: int | None = None) -> SentRequest:
    return SentRequest(
        request.messages[:upto], Preamble(request.instructions, request.tools, request.output_schema), None
    )


def measure(vendor: Vendor, count: int) -> tuple[Score, Score]:
    """The first request of an agent, of which nothing is known; and a later one, after a report for its beginning."""
    first, later = Score(), Score()
    vocabulary_of(vendor.model, vendor.tokenizer)
    encrypted = "openai" if vendor.encrypted else None
    for seed in range(count):
        request = requests(seed, images=vendor.image is not no_image, documents=bool(vendor.pages), encrypted=encrypted)
        estimator = UsageEstimator(vendor.model, tokenizer=vendor.tokenizer)
        first.add(seed, estimator.input(Conversation(), sent(request)), vendor.bills(request))
        begun = next((at + 1 for at, each in enumerate(request.messages) if isinstance(each, UserMessage)), 1)
        if begun < len(request.messages):
            conversation = Conversation()
            before = ModelRequest(
                request.messages[:begun], request.instructions, request.tools, output_schema=request.output_schema
            )
            report = UsageDelta(vendor.bills(before), 10, final=True)
            preamble = sent(request)
            prefix = SentRequest(request.messages[:begun], preamble.preamble, None)
            estimator.record(conversation, prefix, ReceivedAnswer(report, (), complete=True))
            later.add(seed, estimator.input(conversation, preamble), vendor.bills(request))
    return first, later


@pytest.mark.parametrize("name", VENDORS)
def test_the_truth_is_in_the_interval(name: str) -> None:
    check(name, 60)


@pytest.mark.proof
@pytest.mark.parametrize("name", VENDORS)
def test_the_truth_is_in_the_interval_of_many_requests(name: str) -> None:
    check(name, REQUESTS)


def check(name: str, count: int) -> None:
    for score in measure(VENDORS[name], count):
        assert score.held >= 0.99 * score.count, score.misses[:3]


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if sys.argv[1:] else REQUESTS
    print(f"{'':<34} first request: held | open | width | error || later: held | open | width | error")
    for each, kind in VENDORS.items():
        scores = measure(kind, wanted)
        print(f"{each:<34} {' || '.join(score.line() for score in scores)}", flush=True)
        for score in scores:
            for miss in score.misses[:2]:
                print("      missed:", *miss)
