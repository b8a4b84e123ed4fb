#!/usr/bin/env python3
"""The numbers of the source tree: modules, layers, objects, functions, and the walks of one run and of one stop.

Run it in the project's root. The walks need Quiesce importable. A hop is a call that goes from one module of the
package to another. With `--check` it prints only what is over its limit, and exits with 1 then.
"""

from __future__ import annotations

import ast
import asyncio
import collections
import itertools
import pathlib
import statistics
import sys
import tomllib
from types import FrameType
from typing import Any, Final

SRC: Final = pathlib.Path("src/quiesce")
LIMITS: Final = {
    "modules in the root": 20,
    "layers": 16,
    "attributes of an object": 15,
    "lines of a function": 50,
    "hops of one run": 414,
    "hops of one stop": 170,
}


def attributes(node: ast.ClassDef) -> int:
    """How many attributes a class assigns to `self`."""
    assignments = (each for each in ast.walk(node) if isinstance(each, ast.Assign | ast.AnnAssign))
    targets = (
        target for each in assignments for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
    )
    parts = (part for target in targets for part in ast.walk(target) if isinstance(part, ast.Attribute))
    return len({part.attr for part in parts if isinstance(part.value, ast.Name) and part.value.id == "self"})


def measure() -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """The objects by their number of attributes, and the functions by their lines; the largest first."""
    objects: list[tuple[int, str]] = []
    functions: list[tuple[int, str]] = []
    for file in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            name = f"{file.relative_to(SRC)}:{getattr(node, 'name', '')}"
            if isinstance(node, ast.ClassDef):
                objects.append((attributes(node), name))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append(((node.end_lineno or 0) - node.lineno + 1, name))
    return sorted(objects, reverse=True), sorted(functions, reverse=True)


def root_modules() -> int:
    """How many modules lie in the root of the package."""
    return len([file for file in SRC.glob("*.py") if not file.name.startswith("__")])


def layers() -> int:
    """How many layers import-linter keeps apart."""
    contracts = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return max(len(contract.get("layers", ())) for contract in contracts)


def check() -> int:
    """Print what is over its limit. 1 when something is."""
    objects, functions = measure()
    found = [("modules in the root", root_modules(), ""), ("layers", layers(), "")]
    found += [("attributes of an object", count, name) for count, name in objects]
    found += [("lines of a function", count, name) for count, name in functions]
    found += [(f"hops of {label}", walk.hops, "") for label, walk in asyncio.run(walks()).items()]
    over = [(what, count, name) for what, count, name in found if count > LIMITS[what]]
    for what, count, name in over:
        print(f"{what}: {count}, at most {LIMITS[what]} {name}")
    return 1 if over else 0


def shape() -> None:
    """Print the numbers of the tree."""
    objects, functions = measure()
    files = list(SRC.rglob("*.py"))
    print("modules in the root ", root_modules())
    print("layers              ", layers())
    print("lines of Python     ", sum(len(file.read_text().splitlines()) for file in files), "in", len(files), "files")
    print("largest objects     ", objects[:8])
    print("function lines      ", "median", statistics.median(count for count, _ in functions), "longest", functions[0])


class Walk:
    """Writes down which modules of the package the interpreter visits."""

    def __init__(self) -> None:
        self.visited: list[str] = []

    def begin(self) -> None:
        """Start to write down."""
        self.visited.clear()
        sys.setprofile(self._visit)

    def _visit(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or "/src/quiesce/" not in frame.f_code.co_filename:
            return
        module = frame.f_code.co_filename.split("/src/quiesce/")[1][:-3]
        if not frame.f_code.co_name.startswith("<") and "scripted" not in module:
            self.visited.append(module)

    def end(self) -> None:
        """Stop to write down."""
        sys.setprofile(None)

    @property
    def hops(self) -> int:
        """How often the way led from one module to another."""
        return sum(before != after for before, after in itertools.pairwise(self.visited))

    def __str__(self) -> str:
        most = collections.Counter(self.visited).most_common(5)
        return f"{len(self.visited)} calls, {len(set(self.visited))} modules, {self.hops} hops; most visited {most}"


async def walks() -> dict[str, Walk]:
    """Walk through one run with one tool and two turns, and through one stop in a tool."""
    from quiesce import Agent, tool
    from quiesce.events import ToolStarted
    from quiesce.models.scripted import Call, Say, ScriptedModel

    @tool
    async def look(x: str) -> str:
        """Look."""
        return x

    @tool
    async def linger(x: str) -> str:
        """Linger."""
        await asyncio.sleep(3600)
        return x

    one_run, one_stop = Walk(), Walk()
    agent = Agent(ScriptedModel([Say("I look. ", chunk=99), Call("look", {"x": "1"})], "Done."), tools=[look])
    one_run.begin()
    await agent.invoke_async("go")
    one_run.end()
    agent = Agent(ScriptedModel([Call("linger", {"x": "1"})], "Done."), tools=[linger])
    run = agent.start("go")
    async for event in run:
        if isinstance(event, ToolStarted):
            await asyncio.sleep(0)
            one_stop.begin()
            run.cancel("enough")
    await run.stopped()
    one_stop.end()
    return {"one run": one_run, "one stop": one_stop}


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(check())
    shape()
    for label, walk in asyncio.run(walks()).items():
        print(f"{label:20} {walk}")
