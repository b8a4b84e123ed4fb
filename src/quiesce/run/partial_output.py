"""Structured output that is still being written: the part of it that is there, as an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

if TYPE_CHECKING:
    from pydantic import BaseModel, TypeAdapter

_UNFINISHED: Final = "trailing-strings"


def partial_parser(output_type: Any, adapter: TypeAdapter[Any]) -> Callable[[str], Any]:
    """A function from the text so far to an object. It raises pydantic's `ValidationError` when there is none yet.

    A pydantic model gets the fields that are there; `model_fields_set` names them, and reading another one that has no
    default raises `AttributeError`. Its own validators run on the whole output only. Other types come as soon as what
    is there is valid.
    """
    from pydantic import BaseModel

    if isinstance(output_type, type) and issubclass(output_type, BaseModel) and not _is_root(output_type):
        return _model_parser(output_type)
    return lambda text: adapter.validate_json(text, experimental_allow_partial=_UNFINISHED)


def _is_root(model: type[BaseModel]) -> bool:
    return bool(getattr(model, "__pydantic_root_model__", False))


def _model_parser(model: type[BaseModel]) -> Callable[[str], Any]:
    from pydantic import TypeAdapter
    from typing_extensions import TypedDict

    names: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        alias = field.validation_alias if isinstance(field.validation_alias, str) else field.alias
        names[alias or name] = name
        annotation = field.annotation
        fields[alias or name] = Annotated[annotation, *field.metadata] if field.metadata else annotation
    # pydantic leaves out an unfinished last field of a TypedDict, and of none of the other types that have fields.
    part: Any = TypedDict(f"Part of {model.__name__}", fields, total=False)  # pyright: ignore[reportGeneralTypeIssues, reportCallIssue, reportArgumentType]
    adapter = TypeAdapter(part)

    def parse(text: str) -> Any:
        found: dict[str, Any] = adapter.validate_json(text, experimental_allow_partial=_UNFINISHED)
        return model.model_construct({names[key] for key in found}, **{names[key]: found[key] for key in found})

    return parse
