"""What a tool asks, as text. A `reason` with a `question` and `options` is a choice; any other is shown as it is."""

from __future__ import annotations

from typing import Any, cast

import msgspec


def question_text(reason: Any) -> str:
    """The question; with the options to choose from, if there are any."""
    if isinstance(reason, str):
        return reason
    given = cast("dict[str, Any]", reason) if isinstance(reason, dict) else {}
    options = given.get("options")
    if not isinstance(options, list) or set(given) - {"question", "options"}:
        return msgspec.json.encode(reason, enc_hook=str).decode()
    listed = "\n".join(
        f"  - {each if isinstance(each, str) else _json(each)}" for each in cast("list[object]", options)
    )
    return "\n".join(filter(None, (str(given.get("question", "")), listed)))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
