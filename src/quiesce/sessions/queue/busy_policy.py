"""What a prompt does while another run holds its conversation."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from ...messages import UserMessage

OnBusy: TypeAlias = Literal["refuse", "queue", "steer", "cancel_previous"]


class BusyPolicy(Struct, frozen=True):
    """What to do while another process holds the session; `prompt` is what is sent there with "steer"."""

    on_busy: OnBusy = "refuse"
    prompt: UserMessage | None = None
