"""`Idempotency-Key`: a repeated request gets the run that the first one started."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final

import msgspec

from .problems import Problem
from .schemas import StartRun
from .stored_session import StartedRun

# Keys that are remembered for one owner.
_MAX_KEYS: Final = 10_000


class IdempotencyKeys:
    """The runs that were started with an idempotency key, by owner and key. An owner's oldest keys are dropped first.

    With a store, each session also has the keys of its runs: see `StoredSession`.
    """

    def __init__(self) -> None:
        self._by_owner: Final[dict[str, OrderedDict[str, StartedRun]]] = {}

    def find(self, owner: str, key: str) -> StartedRun | None:
        """The run that this key has started; None for a new key."""
        return self._by_owner[owner].get(key) if owner in self._by_owner else None

    def remember(self, owner: str, key: str, started: StartedRun) -> None:
        """Record that this key has started a run."""
        keys = self._by_owner.setdefault(owner, OrderedDict())
        keys[key] = started
        if len(keys) > _MAX_KEYS:
            keys.popitem(last=False)

    def forget(self, owner: str, run_id: str) -> None:
        """Forget the key of a run that could not begin, so that the request can be repeated."""
        keys = self._by_owner.get(owner)
        for key in [] if keys is None else [key for key, started in keys.items() if started.run_id == run_id]:
            del self._by_owner[owner][key]


def fingerprint(request: StartRun) -> bytes:
    """A hash of a request."""
    return hashlib.sha256(msgspec.json.encode(request)).digest()


def check_same_request(earlier: bytes, request: StartRun) -> None:
    """Raises `Problem` when a key came with a different request before, which has the hash `earlier`."""
    if earlier != fingerprint(request):
        message = "This Idempotency-Key was used for a different request."
        raise Problem(422, "idempotency_key_reused", message, todo="Use a new key for each run.")
