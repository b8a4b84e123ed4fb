"""`Idempotency-Key`: a repeated request gets the run that the first one started."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from .problems import Problem

# Keys that are remembered, of all owners together.
_MAX_KEYS: Final = 10_000


class IdempotencyKeys:
    """The runs that were started with an idempotency key, by owner and key. The oldest keys are dropped first."""

    def __init__(self) -> None:
        self._starts: Final[OrderedDict[tuple[str, str], tuple[bytes, str]]] = OrderedDict()

    def run_id(self, owner: str, key: str, fingerprint: bytes) -> str | None:
        """The id of the run that this key started; None for a new key.

        `fingerprint` is a hash of the request. Raises `Problem` when the key came with a different request before.
        """
        earlier = self._starts.get((owner, key))
        if earlier is None:
            return None
        earlier_fingerprint, run_id = earlier
        if earlier_fingerprint != fingerprint:
            raise Problem(
                422,
                "idempotency_key_reused",
                "This Idempotency-Key was used for a different request.",
                todo="Use a new key for each run.",
            )
        return run_id

    def remember(self, owner: str, key: str, fingerprint: bytes, run_id: str) -> None:
        """Record that this key has started a run."""
        self._starts[owner, key] = (fingerprint, run_id)
        while len(self._starts) > _MAX_KEYS:
            self._starts.popitem(last=False)
