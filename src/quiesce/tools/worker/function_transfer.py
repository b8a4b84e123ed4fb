"""How a function gets into another process.

A function of an importable module goes by its name, with the file that it came from, for modules that only their file
leads to (plugins, some test runners). One that cannot be imported there (it is in `__main__`, in a
notebook, or inside another function) goes by value: its code, and the values of the names that it uses. The user's
`__main__` is never run a second time. What can go neither way is refused, with the name of what stands in its way.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import io
import marshal
import pickle
import sys
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, GenericAlias, ModuleType
from typing import Any, Final, Literal, NamedTuple, TypeGuard, get_args, is_typeddict

from ...processes.loaded_types import is_a

_EMPTY: Final = "empty"


class TransferredFunction(NamedTuple):
    """A function as it travels. `key` is the same for the same content."""

    how: Literal["name", "value", "pickle"]
    key: str
    module: str = ""
    qualname: str = ""
    origin: str = ""
    body: bytes = b""


class NotTransferable(Exception):
    """A function, or something that it uses, cannot be sent to another process."""


def pack(function: Callable[..., Any]) -> TransferredFunction:
    """The function, ready to be sent. Raises `NotTransferable`, in words for the one who wrote it."""
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if isinstance(module, str) and isinstance(qualname, str) and _found_by_name(function, module, qualname):
        return TransferredFunction("name", f"{module}:{qualname}", module, qualname, _origin(module))
    if isinstance(function, FunctionType) or _is_partial(function):
        body = pickle.dumps(_Packer().value(function, repr(function), "the function"))
        return TransferredFunction("value", _digest(body), body=body)
    body = _pickled(function, repr(function))
    return TransferredFunction("pickle", _digest(body), body=body)


def _digest(body: bytes) -> str:
    import hashlib  # here, because only the host packs

    return hashlib.sha1(body, usedforsecurity=False).hexdigest()


def unpack(transferred: TransferredFunction) -> Callable[..., Any]:
    """The function again. Raises what importing its module raises."""
    match transferred.how:
        case "name":
            return _bare(_walk(_imported(transferred.module, transferred.origin), transferred.qualname))
        case "value":
            return _Unpacker().value(pickle.loads(transferred.body))
        case "pickle":
            return pickle.loads(transferred.body)


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


def _origin(module: str) -> str:
    spec = sys.modules[module].__spec__
    return spec.origin or "" if spec is not None and spec.has_location else ""


def _imported(module: str, origin: str) -> ModuleType:
    """The module, by its name, or from its file where its name is not importable."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not origin or error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # it was found; something that it needs is missing
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(module, origin)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    sys.modules[module] = made = module_from_spec(spec)
    try:
        spec.loader.exec_module(made)
    except BaseException:
        del sys.modules[module]
        raise
    return made


def _is_partial(value: object) -> TypeGuard[functools.partial[Any]]:
    return isinstance(value, functools.partial)


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
            return ("module", value.__name__, _origin(value.__name__) if value.__name__ in sys.modules else "")
        if _is_partial(value):
            args = [self.value(each, where, name) for each in value.args]
            keywords = {key: self.value(each, where, key) for key, each in value.keywords.items()}
            return ("partial", self.value(value.func, where, name), args, keywords)
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
                return _imported(described[1], described[2])
            case "partial":
                _, function, args, keywords = described
                named = {key: self.value(each) for key, each in keywords.items()}
                return functools.partial(self.value(function), *map(self.value, args), **named)
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

    names = {
        instruction.argval
        for instruction in dis.get_instructions(code)
        # In the body of a class, what is not the class's own is found by LOAD_NAME.
        if instruction.opname.endswith("_GLOBAL") or instruction.opname == "LOAD_NAME"
    }
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


def pickled(value: object) -> bytes:
    """A value for another process. Raises what pickle raises, also for what would not be found over there."""
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def _pickled(value: object, what: str) -> bytes:
    try:
        return pickled(value)
    except Exception as error:
        raise NotTransferable(f"{what} cannot be sent to another process ({type(error).__name__}: {error})") from None


def check_types(hints: dict[str, Any]) -> None:
    """Raises `NotTransferable` when values of one of these types would not be found over there."""
    for name, hint in hints.items():
        for each in _classes(hint):
            if "<" in each.__qualname__ or not _importable(each.__module__):
                raise NotTransferable(
                    f"{name!r} is a {each.__qualname__}, which is defined in {each.__module__}, where another process"
                    " cannot import it from"
                )


def _classes(hint: Any) -> Iterator[type]:
    """The classes that values of a type may be instances of. Those of a `TypedDict` are plain."""
    if isinstance(hint, type) and not is_typeddict(hint) and not isinstance(hint, GenericAlias):
        yield hint
    for part in get_args(hint):
        yield from _classes(part)
