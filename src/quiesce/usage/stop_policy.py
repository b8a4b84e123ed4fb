"""What a stop does about a request that is under way, so that the bill can be known.

    hang_up             close the connection; the provider stops, and what was received is counted
    drain               the provider would bill the whole answer anyway: read on in the background, for the receipt
    lookup              hang up, then ask the provider about the request by its id
    cancel_at_provider  hang up, and tell the provider to cancel the request by its id
    count               hang up, then have the provider's own counter count the request and the received answer

The user never waits for any of these: the run ends at once, and the entry is provisional until better figures come.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

from ..errors import ConfigurationError

StopAction: TypeAlias = Literal["hang_up", "drain", "lookup", "cancel_at_provider", "count"]


class RequestStopPolicy(Struct, frozen=True):
    """An action, and the caps of what it leaves going in the background.

    seconds   how long one request may be followed; then it is cut, and its figures stay an estimate
    at_once   how many requests of one agent may be followed at the same time; one more is hung up on
    bytes     how much text may be read of one request

    Raises `ConfigurationError` for an action that does not exist and for caps that are not positive.
    """

    action: StopAction = "hang_up"
    seconds: float = 30.0
    at_once: int = 8
    bytes: int = 4_000_000

    def __post_init__(self) -> None:
        if self.action not in get_args(StopAction):
            raise ConfigurationError(
                f"There is no stop policy {self.action!r}.", todo=f"Use one of: {', '.join(get_args(StopAction))}."
            )
        if not (0 < self.seconds < float("inf") and self.at_once >= 0 and self.bytes > 0):
            raise ConfigurationError(f"{self!r} makes no sense.", todo="Use caps above zero.")

    @property
    def bill_goes_on(self) -> bool:
        """Whether the provider bills the whole answer although it is cut."""
        return self.action == "drain"


# Providers that bill the whole answer although the connection is closed, and one that is asked afterwards. Elsewhere
# closing the connection stops the bill: the request is hung up on, and what was received is counted.
ACTION_BY_PROVIDER: Final[dict[str, StopAction]] = {
    "bedrock": "drain",
    "google": "drain",
    "gemini": "drain",
    "vertex": "drain",
    "openrouter": "lookup",
}


def policy_for(
    model: str, declared: str | None = None, chosen: RequestStopPolicy | str | None = None
) -> RequestStopPolicy:
    """What the user has chosen, or else what the model declares, or else what is right for its provider.

    Raises `ConfigurationError` for an action that does not exist.
    """
    if isinstance(chosen, RequestStopPolicy):
        return chosen
    action = chosen if chosen is not None else declared or ACTION_BY_PROVIDER.get(model.partition(":")[0], "hang_up")
    return replace(RequestStopPolicy(), action=action)
