"""Answers to approvals and questions, as they are stored."""

from __future__ import annotations

from typing import Any

import msgspec

from ..interrupts import Approve, Deny


def read_answers(stored: bytes) -> dict[str, Any]:
    """Answers that are stored as JSON. Raises `msgspec.ValidationError` where that is no object."""
    return decoded_answers(msgspec.json.decode(stored, type=dict[str, Any]))


def decoded_answers(given: dict[str, Any]) -> dict[str, Any]:
    """Answers by the id of the interrupt; `{"type": "approve"}` and `{"type": "deny"}` are an `Approve` or a `Deny`."""
    return {key: _decoded(value) for key, value in given.items()}


def _decoded(answer: Any) -> Any:
    match answer:
        case {"type": "approve" | "deny"}:
            return msgspec.convert(answer, Approve | Deny)
        case _:
            return answer
