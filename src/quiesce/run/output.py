"""Structured output: an answer that must fit a type."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, get_origin

import msgspec

from ..errors import ConfigurationError
from ..models.wire import schemas

_FENCE: Final = re.compile(r"^\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*$", re.DOTALL)

_WRAPPED: Final = rf'\s*\{{\s*"{schemas.WRAPPER}"\s*:\s*'
_OPENED: Final = r"^\s*```(?:json)?\s*\n"


class OutputMismatch(ValueError):
    """An answer that does not fit; the message says why, in words for the model."""


class OutputSpec:
    """The type that an answer must have: a pydantic model, a dataclass, a union, anything pydantic understands.

    Raises `ConfigurationError` for a type that has no schema.
    """

    def __init__(self, output_type: Any) -> None:
        from pydantic import TypeAdapter

        if not is_type(output_type):
            raise ConfigurationError(
                f"output_type={output_type!r} is not a type.",
                todo="Use a pydantic model, a dataclass, a TypedDict or a union of them.",
            )
        self._type: Final = output_type
        try:
            self._adapter: Final[TypeAdapter[Any]] = TypeAdapter(output_type)
            self._adapter.json_schema()
        except Exception as error:  # pydantic's own, and what a type of the user's raises
            reason = getattr(error, "message", str(error)).splitlines()[0]
            raise ConfigurationError(
                f"output_type={output_type!r} has no JSON schema: {reason}",
                todo="Use a pydantic model, a dataclass, a TypedDict or a union of them.",
            ) from None

    @functools.cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON schema that the model is given."""
        return self._adapter.json_schema()

    def parse(self, text: str) -> Any:
        """The answer as an object. Raises `OutputMismatch` when it does not fit."""
        from pydantic import ValidationError

        fenced = _FENCE.match(text)
        written = fenced.group(1) if fenced else text
        try:
            inner = self._wrapped(written)
            if inner is not None:
                with suppress(ValidationError):
                    return self._adapter.validate_json(inner)
            return self._adapter.validate_json(written)
        except ValidationError as error:
            faults = (f"{'.'.join(map(str, fault['loc'])) or 'answer'}: {fault['msg']}" for fault in error.errors())
            raise OutputMismatch("; ".join(faults)) from None

    def parse_partial(self, text: str) -> Any:
        """The answer as far as it was written. Raises `OutputMismatch` while there is nothing that fits."""
        from pydantic import ValidationError

        written = re.sub(_OPENED, "", text, count=1).removesuffix("```")
        begun = None if self._is_object else re.match(_WRAPPED, written)
        tries = (written,) if begun is None else (written[begun.end() :], written[begun.end() :].rstrip()[:-1], written)
        for number, each in enumerate(tries, start=1):
            try:
                return self._partial(each)
            except ValidationError as error:
                if number == len(tries):
                    raise OutputMismatch(str(error)) from None
        return None

    @functools.cached_property
    def _is_object(self) -> bool:
        return schemas.is_object(self.schema)

    def _wrapped(self, written: str) -> bytes | None:
        """The value that a vendor which takes only objects has put into one; None when there is no such object."""
        if self._is_object:
            return None
        try:
            found = msgspec.json.decode(written, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeError):
            return None
        return bytes(found[schemas.WRAPPER]) if found.keys() == {schemas.WRAPPER} else None

    @functools.cached_property
    def _partial(self) -> Callable[[str], Any]:
        from .partial_output import partial_parser

        return partial_parser(self._type, self._adapter)


def is_type(value: object) -> bool:
    """Whether this can stand where a type stands: a class, a union, `list[int]`, a `Literal`, an alias."""
    named = type(value).__name__ in ("TypeAliasType", "NewType")
    return isinstance(value, type) or get_origin(value) is not None or value is Any or named


def output_spec(output_type: Any) -> OutputSpec | None:
    """What an answer must fit; None for `str` and for no type: any text will do. Raises `ConfigurationError`."""
    return None if output_type is None or output_type is str else OutputSpec(output_type)
