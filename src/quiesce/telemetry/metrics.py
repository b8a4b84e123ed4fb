"""The metrics: those of the GenAI semantic conventions for clients, and how long stops take."""

from __future__ import annotations

from typing import Any, Final

from ..receipt import Receipt
from ..usage.ledger import LedgerEntry
from .attributes import model_attributes

# The boundaries that the conventions ask for.
_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS: Final = tuple(4**power for power in range(14))
# A stop takes milliseconds, or as long as a tool's grace.
_STOPS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """The instruments of one meter."""

    def __init__(self, meter: Any) -> None:
        def histogram(name: str, unit: str, description: str, bounds: tuple[float, ...]) -> Any:
            return meter.create_histogram(
                name, unit=unit, description=description, explicit_bucket_boundaries_advisory=bounds
            )

        self._tokens: Final = histogram(
            "gen_ai.client.token.usage", "{token}", "Number of input and output tokens used.", _TOKENS
        )
        self._duration: Final = histogram(
            "gen_ai.client.operation.duration", "s", "GenAI operation duration.", _SECONDS
        )
        self._first_chunk: Final = histogram(
            "gen_ai.client.operation.time_to_first_chunk", "s", "Time to receive the first chunk.", _SECONDS
        )
        self._stop: Final = histogram(
            "quiesce.stop.latency", "s", "Time from the request to stop a run to its end.", _STOPS
        )

    def first_chunk(self, model: str, seconds: float) -> None:
        """The first part of an answer has come."""
        self._first_chunk.record(seconds, {"gen_ai.operation.name": "chat", **model_attributes(model)})

    def call_ended(self, entry: LedgerEntry, seconds: float | None) -> None:
        """A request has ended. An estimate is recorded too; `quiesce.usage.source` tells it from a reported figure."""
        about = {"gen_ai.operation.name": "chat", **model_attributes(entry.model)}
        failed = {"error.type": entry.error or "_OTHER"} if entry.ended == "failed" else {}
        if seconds is not None:
            self._duration.record(seconds, {**about, **failed})
        for kind in ("input", "output"):
            figure = getattr(entry.usage, kind)
            if figure.value is not None:
                more = {"gen_ai.token.type": kind, "quiesce.usage.source": figure.source.value}
                self._tokens.record(figure.value, {**about, **more})

    def run_ended(self, agent: str, receipt: Receipt, seconds: float, error: str | None) -> None:
        """A run has ended."""
        about = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent}
        self._duration.record(seconds, {**about, **({} if error is None else {"error.type": error})})
        if receipt.cause is not None and receipt.latency is not None:
            mode, phase = str(receipt.mode or receipt.cause.mode), receipt.phase.value
            stop = {"quiesce.stop.mode": mode, "quiesce.stop.phase": phase, "quiesce.stop.source": receipt.cause.source}
            self._stop.record(receipt.latency, {**stop, "gen_ai.agent.name": agent})
