"""Token counts that are not whole numbers. A figure that is wrong never costs the answer that it belongs to."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from typing import Any, Final

from .json_values import as_dict, as_list

_log: Final = logging.getLogger("quiesce")
# Where providers report usage, and what it may be inside of.
_USAGE: Final = frozenset({"usage", "usageMetadata", "timings", "prompt_eval_count", "eval_count"})
_AROUND: Final = frozenset({"response", "message", "choices", "x_groq"})
# An event that reports usage is not longer. Reading one this way is slow.
_LONGEST: Final = 1024 * 1024
# More than can be true: such a count is reported as impossible, like any other.
_MOST: Final = 10**18
_DIGITS: Final = 18


def with_whole_counts(data: bytes, label: str) -> bytes | None:
    """An event that cannot be read, with its token counts rounded; without them, when all are whole numbers already.

    None when it reports no usage.
    """
    if len(data) > _LONGEST:
        return None
    try:
        event: Any = json.loads(data, parse_int=_whole)
    except (ValueError, RecursionError):
        return None
    wrong: dict[str, Any] = {}
    for clean in (_rounded, _left_out):
        event = _changed(event, clean, wrong)
        if wrong:
            _log.warning("%s reported token counts that are not whole numbers: %s.", label, wrong)
            return json.dumps(event).encode()
    return None


def _whole(digits: str) -> int:
    """A number of any length: Python refuses thousands of digits."""
    return int(digits) if len(digits) <= _DIGITS else -_MOST if digits.startswith("-") else _MOST


def _changed(event: Any, clean: Callable[[str, Any, dict[str, Any]], Any], wrong: dict[str, Any]) -> Any:
    """The event, with what it reports as usage cleaned."""
    if isinstance(event, list):
        return [_changed(each, clean, wrong) for each in as_list(event)]
    changed = as_dict(event)
    for name, value in list(changed.items()):
        if name in _AROUND and isinstance(value, dict | list):
            changed[name] = _changed(value, clean, wrong)
        elif name in _USAGE:
            changed[name] = clean(name, value, wrong)
            if changed[name] is None:
                del changed[name]
    return changed


def _rounded(name: str, value: Any, wrong: dict[str, Any]) -> Any:
    """A count as a whole number. What is no number is left out."""
    if isinstance(value, dict):
        cleaned = ((each, _rounded(each, count, wrong)) for each, count in as_dict(value).items())
        return {each: count for each, count in cleaned if count is not None}
    if isinstance(value, list) and all(isinstance(each, dict) for each in as_list(value)):
        return [_rounded(name, each, wrong) for each in as_list(value)]
    if value is None or type(value) is int:
        return value
    if not name.endswith(("cost", "tier")):
        wrong[name] = value
    if isinstance(value, float) and not math.isnan(value):
        return round(max(-_MOST, min(value, _MOST)))
    return None


def _left_out(name: str, value: Any, wrong: dict[str, Any]) -> None:
    wrong[name] = value
