"""How a function gets into another process.

A function of an importable module goes by its name. One that cannot be imported there (it is in `__main__`, in a
notebook, or inside another function) goes by value: its code, and the values of the names that it uses. The user's
`__main__` is never run a second time. What can go neither way is refused, with the name of what stands in its way.
"""

from __future__ import annotations

import builtins
import importlib
import io
import marshal
import pickle
import sys
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final, Literal, NamedTuple

from .loaded import is_a

_EMPTY: Final = "empty"


class Parcel(NamedTuple):
    """A function as it travels. `key` is the same for the same content."""

    how: Literal["name", "value", "pickle"]
    key: str
    module: str = ""
    qualname: str = ""
    body: bytes = b""


class CannotTravel(Exception):
    """A function, or something that it uses, cannot be sent to another process."""


def pack(function: Callable[..., Any]) -> Parcel:
    """The function, ready to be sent. Raises `CannotTravel`, in words for the one who wrote it."""
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if isinstance(module, str) and isinstance(qualname, str) and _found_by_name(function, module, qualname):
        return Parcel("name", f"{module}:{qualname}", module, qualname)
    if isinstance(function, FunctionType):
        body = pickle.dumps(_Packer().function(function))
        return Parcel("value", _digest(body), body=body)
    body = _pickled(function, repr(function))
    return Parcel("pickle", _digest(body), body=body)


def _digest(body: bytes) -> str:
    import hashlib  # here, because only the host packs

    return hashlib.sha1(body, usedforsecurity=False).hexdigest()


def unpack(parcel: Parcel) -> Callable[..., Any]:
    """The function again. Raises what importing its module raises."""
    match parcel.how:
        case "name":
            return _bare(_walk(importlib.import_module(parcel.module), parcel.qualname))
        case "value":
            return _Unpacker().function(pickle.loads(parcel.body))
        case "pickle":
            return pickle.loads(parcel.body)


def _found_by_name(function: object, module: str, qualname: str) -> bool:
    if "<" in qualname or not _importable(module):
        return False
    try:
        return _bare(_walk(sys.modules[module], qualname)) is function
    except AttributeError:
        return False


def _importable(module: str) -> bool:
    """Whether another process can import this module: not the script itself, and imported from somewhere."""
    if module in ("__main__", "__mp_main__"):
        return False
    return getattr(sys.modules.get(module), "__spec__", None) is not None


def _walk(found: Any, qualname: str) -> Any:
    for name in qualname.split("."):
        found = getattr(found, name)
    return found


def _bare(found: Any) -> Any:
    """The function inside, when the name now stands for the tool that was made of it."""
    return found.function if is_a(found, "quiesce.tools.tool", "Tool") else found


# --- By value ------------------------------------------------------------------------------------------------------


class _Packer:
    """Describes a function as plain values. Functions that use each other are described once."""

    def __init__(self) -> None:
        self._seen: Final[dict[int, int]] = {}

    def function(self, function: FunctionType) -> tuple[Any, ...]:
        if id(function) in self._seen:
            return ("again", self._seen[id(function)])
        number = self._seen[id(function)] = len(self._seen)
        where = function.__qualname__
        cells = [self._cell(cell, where, name) for name, cell in _cells(function)]
        return (
            "function",
            number,
            marshal.dumps(function.__code__),
            function.__name__,
            function.__qualname__,
            [self.value(value, where, "a default") for value in function.__defaults__ or ()],
            {name: self.value(value, where, name) for name, value in (function.__kwdefaults__ or {}).items()},
            cells,
            {name: self.value(function.__globals__[name], where, name) for name in _globals_used(function)},
        )

    def _cell(self, cell: CellType, where: str, name: str) -> Any:
        try:
            return self.value(cell.cell_contents, where, name)
        except ValueError:  # nothing was put into it yet
            return (_EMPTY,)

    def value(self, value: Any, where: str, name: str) -> Any:
        value = _bare(value)
        if isinstance(value, ModuleType):
            return ("module", value.__name__)
        if isinstance(value, FunctionType) and not _found_by_name(value, value.__module__, value.__qualname__):
            return self.function(value)
        return ("pickle", _pickled(value, f"{name!r}, which {where} uses,"))


class _Unpacker:
    def __init__(self) -> None:
        self._made: Final[dict[int, FunctionType]] = {}

    def function(self, described: tuple[Any, ...]) -> FunctionType:
        if described[0] == "again":
            return self._made[described[1]]
        _, number, code, name, qualname, defaults, kwdefaults, cells, used = described
        space: dict[str, Any] = {"__builtins__": builtins, "__name__": "__quiesce__"}
        boxes = tuple(CellType() for _ in cells)
        made = FunctionType(marshal.loads(code), space, name, None, boxes)
        made.__qualname__ = qualname
        self._made[number] = made
        made.__defaults__ = tuple(map(self.value, defaults)) or None
        made.__kwdefaults__ = {key: self.value(value) for key, value in kwdefaults.items()} or None
        for box, described_cell in zip(boxes, cells, strict=True):
            if described_cell != (_EMPTY,):
                box.cell_contents = self.value(described_cell)
        space.update({key: self.value(value) for key, value in used.items()})
        return made

    def value(self, described: tuple[Any, ...]) -> Any:
        match described[0]:
            case "module":
                return importlib.import_module(described[1])
            case "pickle":
                return pickle.loads(described[1])
            case _:
                return self.function(described)


def _cells(function: FunctionType) -> Iterator[tuple[str, CellType]]:
    return zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)


def _globals_used(function: FunctionType) -> list[str]:
    return sorted(name for name in _global_names(function.__code__) if name in function.__globals__)


def _global_names(code: CodeType) -> set[str]:
    import dis  # here, because only the host packs

    names = {instruction.argval for instruction in dis.get_instructions(code) if instruction.opname.endswith("_GLOBAL")}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return names


class _Pickler(pickle.Pickler):
    """Refuses what would not be found over there, such as what is defined in `__main__`."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | FunctionType) and not _importable(obj.__module__):
            raise pickle.PicklingError(f"{obj.__qualname__} is defined in {obj.__module__}, which cannot be imported")
        return NotImplemented


def _pickled(value: object, what: str) -> bytes:
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    except Exception as error:
        raise CannotTravel(f"{what} cannot be sent to another process ({type(error).__name__}: {error})") from None
    return buffer.getvalue()
