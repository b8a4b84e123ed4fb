"""What a person approves: the validated call, frozen, of a tool whose definition is known."""

from __future__ import annotations

import inspect
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..cancellation.raised import is_own_error
from ..conversation.answer import well_formed
from ..interrupts import Approval
from ..run_context import RunContext
from .thread import ThreadCall

if TYPE_CHECKING:
    from .tool import Tool

CHANGED: Final = "The tool has changed since this call was approved, so the approval does not count. It is asked again."


def fingerprint(tool: Tool) -> str:
    """What tells one definition of a tool from another: name, description, schema and defaults."""
    import hashlib  # only a tool that asks needs it

    spec = tool.spec
    definition = [spec.name, spec.description, spec.schema, _plain_defaults(tool)]
    return hashlib.sha256(msgspec.json.encode(definition, order="deterministic", enc_hook=repr)).hexdigest()[:32]


def frozen_arguments(tool: Tool, given: dict[str, Any], validated: dict[str, Any]) -> dict[str, Any]:
    """The arguments as plain JSON values that validate to the same call: coerced, and with defaults.

    Where a type does not survive being written as JSON (a secret, a validator that changes its own output), the
    arguments are kept as the model gave them.
    """
    plain = _plain(validated)
    expected = {**tool.defaults(), **validated}
    for candidate in () if plain is None else (_with_defaults(tool, plain), plain):
        if _reads_back(tool, candidate, expected):
            return candidate
    return deepcopy(given)


def shown_arguments(tool: Tool, frozen: dict[str, Any]) -> dict[str, Any]:
    """The arguments for the person who is asked: the frozen ones, with every default that has a JSON form."""
    return _with_defaults(tool, deepcopy(frozen))


def checked_arguments(tool: Tool, given: dict[str, Any]) -> dict[str, Any]:
    """Arguments from a person, frozen. Raises `ToolError` for invalid ones."""
    return frozen_arguments(tool, given, tool.validate(deepcopy(given)))


async def wanted_approval(tool: Tool, frozen: dict[str, Any], context: RunContext[Any]) -> Approval | None:
    """The approval that a call needs; None when it needs none. When in doubt, it needs one.

    The functions of the tool get copies: what they change in the arguments changes nothing.
    """
    wanted: Any = tool.requires_approval
    if callable(wanted):
        try:
            arguments = tool.validate(deepcopy(frozen))
            wanted = wanted(context, arguments) if _takes_context(wanted) else wanted(arguments)
            wanted = await wanted if inspect.isawaitable(wanted) else wanted
        except BaseException as error:
            if not is_own_error(error):
                raise
            wanted = Approval(reason=f"Whether an approval is needed is not known: {type(error).__name__}: {error}")
    if isinstance(wanted, str):
        wanted = Approval(preview=wanted)
    if not isinstance(wanted, Approval):
        if not wanted:
            return None
        wanted = Approval()
    wanted = wanted if wanted.preview is not None else await _with_preview(wanted, tool, frozen)
    return Approval(None if wanted.preview is None else well_formed(str(wanted.preview)), wanted.reason)


async def _with_preview(approval: Approval, tool: Tool, frozen: dict[str, Any]) -> Approval:
    """The approval with the tool's own preview, if it has one. A preview may read files, so it is made in a thread."""
    if not tool.has_preview:
        return approval
    made = ThreadCall(partial(tool.preview_text, deepcopy(frozen)), f"quiesce-preview-{tool.name}", _ignore)
    return Approval(await made.wait(), approval.reason)


def _ignore(_: object) -> None:
    """A stop has come while a preview was made: it is not shown."""


def _takes_context(function: Any) -> bool:
    """Whether the function takes the run's context before the arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional and each.default is each.empty for each in parameters) > 1


def _with_defaults(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments | {name: value for name, value in _plain_defaults(tool).items() if name not in arguments}


def _plain_defaults(tool: Tool) -> dict[str, Any]:
    """The defaults of the tool's parameters that have a JSON form."""
    given = {name: value for name, value in tool.defaults().items() if value is not inspect.Parameter.empty}
    found = {name: _plain({name: value}) for name, value in given.items()}
    return {name: value for each in found.values() if each is not None for name, value in each.items()}


def _plain(values: dict[str, Any]) -> dict[str, Any] | None:
    """The values in their JSON form; None when one has none."""
    from pydantic_core import to_json

    try:
        return msgspec.json.decode(to_json(values, inf_nan_mode="strings"))
    except Exception:  # a serializer of the user's own can raise anything
        return None


def _reads_back(tool: Tool, candidate: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether these arguments validate to the values that are expected."""
    try:
        again = tool.validate(deepcopy(candidate))
        return all(bool(value == expected[name]) for name, value in again.items())
    except Exception:  # not valid; or the comparison of a type of the user's own can raise anything
        return False
