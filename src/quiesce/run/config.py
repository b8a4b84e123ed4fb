"""What a run is started with: the configuration of its agent, and its input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from ..billing.drain import DrainPool
from ..billing.request_bill import BillingTerms
from ..compaction import Context
from ..conversation.sealing import DEFAULT_CUT_NOTE, DEFAULT_FAILED_NOTE
from ..errors import ConfigurationError
from ..hooks import Hooks
from ..interrupts import Answers
from ..limits import Limits, OnLimit
from ..messages import UserMessage
from ..middleware.base import Middleware
from ..models.base import Model, ToolChoice
from ..models.server_tools import ServerTool
from ..retry import Retry
from ..sessions.queue.busy_policy import OnBusy
from ..tools.big_results import MAX_RESULT
from ..tools.tool import Tool
from ..usage.estimate.calibration import Calibration
from ..usage.estimate.estimator import UsageEstimator
from ..usage.price_list import loaded_price
from ..usage.prices import Price
from ..usage.stop_policy import RequestStopPolicy, policy_for
from .instructions import Instruction
from .output import OutputSpec
from .stream_timeouts import StreamTimeouts

OnPrompt: TypeAlias = Literal["refuse", "cancel_pending"]
__all__ = [
    "OnBusy",
    "OnPrompt",
    "RunConfig",
    "RunInput",
    "billing_terms",
    "check_price",
    "for_owner",
    "open_estimator",
    "price_of",
]


class RunConfig(Struct, frozen=True):
    """What a run is started with. Never changes while it runs."""

    agent: str
    model: Model
    instructions: tuple[Instruction[Any], ...] = ()
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
    settings: Mapping[str, Any] | None = None
    context: Context | None = None
    estimator: UsageEstimator | None = None
    stop_policy: RequestStopPolicy | None = None
    drain_pool: DrainPool = field(default_factory=DrainPool)
    deps_type: Any = None
    on_limit: OnLimit = "stop"
    stream_timeouts: StreamTimeouts = field(default_factory=StreamTimeouts)
    middleware: tuple[Middleware[Any], ...] = ()
    tool_choice: ToolChoice | None = None
    max_result: int | None = MAX_RESULT
    server_tools: tuple[ServerTool, ...] = ()
    handoffs: tuple[str, ...] = ()
    """The tools by which the conversation has come to this agent."""
    one_step: bool = False
    """Whether the run ends before the tools that its answer asks for, or after them, with its turn pending."""


def open_estimator(model: Model, calibration: Calibration | None = None) -> UsageEstimator:
    """The usage estimator for a model: at its own price, or at the published one."""
    return UsageEstimator(
        model.name,
        tokenizer=getattr(model, "tokenizer", None),
        price=model.price or loaded_price,
        calibration=calibration,
        is_deployment=getattr(model, "is_deployment", False),
    )


def for_owner(config: RunConfig, owner: str) -> RunConfig:
    """The config for a run of one owner of a server: what its calls teach is kept apart from what others' have."""
    if not owner or config.estimator is None:
        return config
    return replace(config, estimator=config.estimator.for_owner(owner))


def check_price(config: RunConfig) -> RunConfig:
    """The config itself. Raises `ConfigurationError` when money is limited and the model has no price."""
    if config.limits.cost is not None and price_of(config) is None:
        raise ConfigurationError(
            f"Limits(cost=...) needs a price, and none is known for {config.model.name}.",
            todo="Install quiesce[prices], give the model a price, or limit tokens instead.",
        )
    return config


def price_of(config: RunConfig) -> Price | None:
    """What the model's tokens cost: its own price, or the published one, whose list is loaded for that."""
    return config.model.price if config.estimator is None else config.estimator.load_price()


def billing_terms(config: RunConfig) -> BillingTerms:
    """On what terms a run's requests are billed."""
    model = config.model
    policy = config.stop_policy or policy_for(model.name, getattr(model, "stop_policy", None))
    return BillingTerms(model, config.estimator or open_estimator(model), policy, config.drain_pool)


class Handoff(Struct, frozen=True):
    """The agent that continues after this turn, and the tool that asked for it."""

    config: RunConfig
    tool_name: str


class RunInput(Struct, frozen=True):
    """What a run begins with: a prompt, answers to what a person was asked, or the answer that was cut."""

    prompt: UserMessage | None = None
    answers: Answers | None = None
    on_prompt: OnPrompt = "cancel_pending"
    on_busy: OnBusy = "refuse"
    deps: Any = None
    owner: str = ""
    limits: Limits | None = None
    """The limits that this call names; a run that goes on at a raised limit keeps the earlier ones without them."""
    on_limit: OnLimit | None = None
    timeout: float | None = None
    has_own_timeout: bool = False
    """Whether the call names the timeout, so that a run that goes on with a task has that instead of what is left."""
