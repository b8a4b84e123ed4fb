"""The instructions of a run: text, functions of the run's context, or several of both."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias, cast

from .._exact import exact_text
from ..errors import ConfigurationError, RunError
from ..run_context import DepsT, RunContext

Instruction: TypeAlias = str | Callable[[RunContext[DepsT]], str | Awaitable[str | None] | None]


def checked_instructions(given: object) -> tuple[Instruction[Any], ...]:
    """What an agent was given as `instructions=`. Raises `ConfigurationError` for what is neither text nor function."""
    if given is None:
        return ()
    several = cast("tuple[Any, ...]", tuple(given) if isinstance(given, list | tuple) else (given,))  # pyright: ignore[reportUnknownArgumentType]
    for each in several:
        if not isinstance(each, str) and not callable(each):
            raise ConfigurationError(
                f"instructions={each!r} is neither text nor a function.",
                todo="Use a string, a function that takes the RunContext and returns one, or a list of both.",
            )
    return several


def joined(texts: Iterable[str | None]) -> str | None:
    """Several instructions as one text."""
    return "\n\n".join(exact_text(text) for text in texts if text) or None


def static_text(instructions: tuple[Instruction[Any], ...]) -> str | None:
    """The text, where no function has to be called for it."""
    return joined(each for each in instructions if isinstance(each, str))


def has_functions(instructions: tuple[Instruction[Any], ...]) -> bool:
    """Whether a part of the text is only known when a request is made."""
    return not all(isinstance(each, str) for each in instructions)


async def evaluated(instructions: tuple[Instruction[Any], ...], context: RunContext[Any]) -> str | None:
    """The text for one request. Raises `RunError` when a function raises, or returns what is no text."""
    return joined([await _text(each, context) for each in instructions])


async def _text(instruction: Instruction[Any], context: RunContext[Any]) -> str | None:
    if isinstance(instruction, str):
        return instruction
    name = getattr(instruction, "__qualname__", type(instruction).__name__)
    try:
        text = instruction(context)
        if inspect.isawaitable(text):
            text = await text
    except Exception as error:
        raise RunError(f"The instructions function {name} raised {type(error).__name__}: {error}.") from error
    if text is not None and not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RunError(f"The instructions function {name} returned {type(text).__name__}, not text.")
    return text
