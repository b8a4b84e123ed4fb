"""The messages of a request in a provider's format, as JSON that is made once for each message."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from ...messages import AssistantMessage, Message
from .json_values import as_dict


class _Encoded(weakref.ref[Message]):
    """A message, weakly, and what was made of it."""

    __slots__ = ("calls", "items", "key")

    key: int
    items: tuple[msgspec.Raw, ...]
    calls: tuple[str, ...]


class MessageEncoder:
    """Converts messages with one provider's format. Messages are frozen, so each is encoded once, as long as it lives.

    A run sends its conversation again with every turn: with this, a request is a join of bytes that are there already.
    """

    def __init__(self, format: Callable[[Message], Iterable[dict[str, Any]]]) -> None:
        self._format: Final = format
        self._kept: Final[dict[int, _Encoded]] = {}
        self._drop: Final = _dropping(weakref.ref(self))

    def items(self, messages: Sequence[Message], *, encoded: bool, open_end: bool = False) -> list[Any]:
        """The messages as the provider wants them: as JSON, to be put into the body of a request, or as objects.

        `open_end`: the last message is made of objects in any case, because something will be added to it.
        """
        last = tuple(self._format(messages[-1])) if open_end and messages else ()
        settled = messages[:-1] if last else messages
        if not encoded:
            return [*(item for message in settled for item in self._format(message)), *last]
        return [*(item for each in self._all(settled) for item in each.items), *last]

    def called(self, messages: Iterable[Message]) -> list[str]:
        """The names of the tools that the messages call, one for each call."""
        return [name for encoded in self._all(messages) for name in encoded.calls]

    def _all(self, messages: Iterable[Message]) -> list[_Encoded]:
        kept = self._kept
        found: list[_Encoded] = []
        for message in messages:
            encoded = kept.get(id(message))
            if encoded is None or encoded() is not message:
                encoded = self._encode(message)
            found.append(encoded)
        return found

    def _encode(self, message: Message) -> _Encoded:
        encoded = _Encoded(message, self._drop)
        encoded.key = id(message)
        encoded.items = tuple(msgspec.Raw(encode(item)) for item in self._format(message))
        calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
        encoded.calls = tuple(call.name for call in calls)
        self._kept[encoded.key] = encoded
        return encoded

    def forget(self, encoded: _Encoded) -> None:
        """The message is gone."""
        self._kept.pop(encoded.key, None)


def _dropping(encoder: weakref.ref[MessageEncoder]) -> Callable[[weakref.ref[Message]], None]:
    """What is called when a message is gone. It does not keep the encoder."""

    def drop(encoded: weakref.ref[Message]) -> None:
        found = encoder()
        if found is not None and isinstance(encoded, _Encoded):
            found.forget(encoded)

    return drop


def encode(body: Any) -> bytes:
    """A body as JSON. Settings may hold pydantic models, as the vendors' SDKs allow it."""
    return msgspec.json.encode(body, enc_hook=_as_json)


def _as_json(value: Any) -> Any:
    dump: Any = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} has no place in a request")
    return as_dict(dump(mode="json", by_alias=True, exclude_unset=True))
