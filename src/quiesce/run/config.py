"""What a run is started with: the configuration of its agent, and its input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from ..billing.drain import DrainPool
from ..billing.request_bill import BillingTerms
from ..compaction import Context
from ..conversation.continuation import Continue
from ..conversation.sealing import DEFAULT_CUT_NOTE, DEFAULT_FAILED_NOTE
from ..errors import ConfigurationError, InvalidPrompt
from ..hooks import Hooks
from ..interrupts import Answers
from ..limits import Limits
from ..messages import UserMessage
from ..models.base import Model
from ..retry import Retry
from ..sessions.queue.waiting import OnBusy
from ..tools.tool import Tool
from ..usage.estimate.calibration import Calibration
from ..usage.estimate.estimator import UsageEstimator
from ..usage.price_list import published_price
from ..usage.prices import Price
from ..usage.stop_policy import RequestStopPolicy, policy_for
from .output import OutputSpec

OnPrompt: TypeAlias = Literal["refuse", "cancel_pending"]
__all__ = [
    "OnBusy",
    "OnPrompt",
    "RunConfig",
    "RunInput",
    "billing_terms",
    "open_estimator",
    "price_of",
    "run_input",
    "with_options",
]


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What a run is started with. Never changes while it runs."""

    agent: str
    model: Model
    instructions: str | None = None
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    hooks: Hooks = field(default_factory=Hooks)
    limits: Limits = field(default_factory=Limits)
    retry: Retry = field(default_factory=Retry)
    output: OutputSpec | None = None
    output_retries: int = 2
    sequential: bool = False
    cut_note: str = DEFAULT_CUT_NOTE
    failed_note: str = DEFAULT_FAILED_NOTE
    state: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] | None = None
    context: Context | None = None
    estimator: UsageEstimator | None = None
    stop_policy: RequestStopPolicy | None = None
    drain_pool: DrainPool = field(default_factory=DrainPool)
    handoffs: tuple[str, ...] = ()
    """The tools by which the conversation has come to this agent."""


def open_estimator(model: Model, calibration: Calibration | None = None) -> UsageEstimator:
    """The usage estimator for a model: at its own price, or at the published one."""
    return UsageEstimator(
        model.name,
        tokenizer=getattr(model, "tokenizer", None),
        price=model.price or published_price(model.name),
        calibration=calibration,
    )


def with_options(config: RunConfig, limits: Limits | None, output_type: Any) -> RunConfig:
    """The config of one run, with limits and an output type of its own where they are given.

    Raises `ConfigurationError` when money is limited and the model has no price.
    """
    if limits is not None:
        config = replace(config, limits=limits)
    if output_type is not None:
        config = replace(config, output=OutputSpec(output_type))
    if config.limits.cost is not None and price_of(config) is None:
        raise ConfigurationError(
            f"Limits(cost=...) needs a price, and none is known for {config.model.name}.",
            todo="Install quiesce[prices], give the model a price, or limit tokens instead.",
        )
    return config


def price_of(config: RunConfig) -> Price | None:
    """What the model's tokens cost: its own price, or the published one."""
    return config.model.price if config.estimator is None else config.estimator.price


def billing_terms(config: RunConfig) -> BillingTerms:
    """On what terms a run's requests are billed."""
    model = config.model
    policy = config.stop_policy or policy_for(model.name, getattr(model, "stop_policy", None))
    return BillingTerms(model, config.estimator or open_estimator(model), policy, config.drain_pool)


class Handoff(NamedTuple):
    """The agent that continues after this turn, and the tool that asked for it."""

    config: RunConfig
    tool_name: str


@dataclass(frozen=True, slots=True)
class RunInput:
    """What a run begins with: a prompt, answers to what a person was asked, or the answer that was cut."""

    prompt: UserMessage | None = None
    answers: Answers | None = None
    on_prompt: OnPrompt = "cancel_pending"
    on_busy: OnBusy = "refuse"


def run_input(
    prompt: UserMessage | Answers | Continue, *, is_asked: bool, on_prompt: OnPrompt, on_busy: OnBusy
) -> RunInput:
    """What a run begins with that is given this prompt; `is_asked` says whether an approval is pending.

    Raises `InvalidPrompt` for answers to nothing.
    """
    match prompt:
        case Mapping() if prompt or is_asked:
            return RunInput(answers=dict(prompt), on_busy=on_busy)
        case Continue():
            return RunInput(on_prompt=on_prompt, on_busy=on_busy)
        case UserMessage():
            return RunInput(prompt, on_prompt=on_prompt, on_busy=on_busy)
        case _:
            raise InvalidPrompt(prompt)
