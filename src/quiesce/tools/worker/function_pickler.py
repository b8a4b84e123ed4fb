"""How a function gets into another process: the part of the host, which sends it.

`cloudpickle` carries what cannot be imported there, functions and classes alike. This adds what it leaves out: modules
that only their file leads to, tools inside a function, and an error that names what stands in the way.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import io
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, GenericAlias, ModuleType
from typing import Any, Final, cast, get_args, is_typeddict

import cloudpickle

from .function_transfer import TransferredFunction, bare, named, set_state

# How the body of a class reads a name of its module; cloudpickle looks for LOAD_GLOBAL only.
_READS_IN_CLASS_BODIES: Final = ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")


class NotTransferable(Exception):
    """A function, or something that it uses, cannot be sent to another process."""


def pack(function: Callable[..., Any]) -> TransferredFunction:
    """The function, ready to be sent. Raises `NotTransferable`, which names what cannot be sent."""
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if isinstance(module, str) and isinstance(qualname, str) and _found_by_name(function, module, qualname):
        return TransferredFunction(f"{module}:{qualname}", module, qualname, ((module, _origin(module)),))
    pickler = _FunctionPickler()
    try:
        body = pickler.pickled(function)
    except Exception as error:
        raise NotTransferable(_obstacle(function, error, set())) from None
    key = hashlib.sha1(body, usedforsecurity=False).hexdigest()
    return TransferredFunction(key, origins=tuple(pickler.origins.items()), body=body)


def pickled(value: object) -> bytes:
    """A value for another process. Raises what pickle raises."""
    return _FunctionPickler().pickled(value)


def check_types(hints: dict[str, Any]) -> None:
    """Raises `NotTransferable` when values of one of these types cannot be sent to another process."""
    for name, hint in hints.items():
        for each in _classes(hint):
            try:
                pickled(each)
            except Exception as error:
                raise NotTransferable(f"{name!r} is a {each.__qualname__}, which {_refused(error)}") from None


def _classes(hint: Any) -> Iterator[type]:
    """The classes that values of a type may be instances of. Those of a `TypedDict` are plain."""
    if isinstance(hint, type) and not is_typeddict(hint) and not isinstance(hint, GenericAlias):
        yield hint
    for part in get_args(hint):
        yield from _classes(part)


class _FunctionPickler(cloudpickle.Pickler):
    """Pickles a tool as its function, and records the file of each module that the worker has to import."""

    def __init__(self) -> None:
        self._buffer: Final = io.BytesIO()
        self.origins: Final[dict[str, str]] = {}
        super().__init__(self._buffer)  # pyright: ignore[reportUnknownMemberType]

    def pickled(self, value: object) -> bytes:
        self.dump(value)  # pyright: ignore[reportUnknownMemberType]
        return self._buffer.getvalue()

    def reducer_override(self, obj: Any) -> Any:
        if bare(obj) is not obj:
            return bare, (obj.function,)
        if not isinstance(obj, FunctionType | type | ModuleType):
            return NotImplemented
        module = obj.__name__ if isinstance(obj, ModuleType) else obj.__module__
        found = sys.modules.get(module)
        if isinstance(found, ModuleType) and found.__name__ in sys.modules and not _importable(module):
            cloudpickle.register_pickle_by_value(found)  # pyright: ignore[reportUnknownMemberType]
        reduced = cast(Any, super().reducer_override(obj))  # pyright: ignore[reportUnknownMemberType]
        if reduced is not NotImplemented and isinstance(obj, FunctionType):
            if not _found_by_name(obj, module, obj.__qualname__):
                return _with_class_bodies(obj, reduced)
            reduced = named, (module, obj.__qualname__)  # the name stands for a tool, which cloudpickle does not know
        elif reduced is not NotImplemented:
            return reduced
        if _importable(module):
            self.origins[module] = _origin(module)
        return reduced


def _with_class_bodies(function: FunctionType, reduced: Any) -> Any:
    missed = {name: function.__globals__[name] for name in _read_in_class_bodies(function.__code__, function)}
    if not missed:
        return reduced
    make, arguments, state, *_, set_own = reduced
    return make, arguments, (set_own, state, missed), None, None, set_state


def _read_in_class_bodies(code: CodeType, function: FunctionType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            for instruction in dis.get_instructions(constant):
                if instruction.opname in _READS_IN_CLASS_BODIES and instruction.argval in function.__globals__:
                    yield instruction.argval
            yield from _read_in_class_bodies(constant, function)


# --- What can be imported over there ---------------------------------------------------------------------------------


def _found_by_name(function: object, module: str, qualname: str) -> bool:
    if "<" in qualname or not _importable(module):
        return False
    try:
        return named(module, qualname) is function
    except AttributeError:
        return False


def _importable(module: str) -> bool:
    """Whether another process can import this module: not the script itself, and imported from somewhere."""
    if module in ("__main__", "__mp_main__"):
        return False
    return getattr(sys.modules.get(module), "__spec__", None) is not None


def _origin(module: str) -> str:
    spec = sys.modules[module].__spec__
    return spec.origin or "" if spec is not None and spec.has_location else ""


# --- What stands in the way ------------------------------------------------------------------------------------------


def _obstacle(function: Any, error: Exception, seen: set[int]) -> str:
    """Which variable of the function, or of a function that it uses, cannot be sent."""
    seen.add(id(function))
    for name, value in _variables(function):
        try:
            pickled(value)
        except Exception as fault:
            used = bare(value)
            if isinstance(used, FunctionType) and id(used) not in seen:
                return _obstacle(used, fault, seen)
            if not isinstance(used, FunctionType):
                return f"{name!r}, which {getattr(function, '__qualname__', function)} uses, {_refused(fault)}"
    return f"{function!r} {_refused(error)}"


def _variables(function: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(function, functools.partial):
        yield "func", function.func
        yield from ((f"argument {number}", value) for number, value in enumerate(function.args))
        yield from function.keywords.items()
    if not isinstance(function, FunctionType):
        return
    yield from (("a default", value) for value in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # nothing was put into it yet
            continue
    used = _names(function.__code__)
    yield from ((name, function.__globals__[name]) for name in used if name in function.__globals__)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _refused(error: Exception) -> str:
    return f"cannot be sent to another process ({type(error).__name__}: {error})"
