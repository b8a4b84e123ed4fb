#!/usr/bin/env python3
"""The numbers of the house: run it in the project's root. Counts modules, layers, objects, functions, and the walks of a run and of a stop.

The walks need Quiesce importable (the project's own virtual environment). A hop is a call that goes from one module of ours to another.
"""

import ast
import asyncio
import collections
import pathlib
import statistics
import sys
import tomllib

SRC = pathlib.Path("src/quiesce")


def attributes(node: ast.ClassDef) -> int:
    targets = (
        t
        for x in ast.walk(node)
        if isinstance(x, ast.Assign | ast.AnnAssign)
        for t in (x.targets if isinstance(x, ast.Assign) else [x.target])
    )
    return len(
        {
            a.attr
            for t in targets
            for a in ast.walk(t)
            if isinstance(a, ast.Attribute) and isinstance(a.value, ast.Name) and a.value.id == "self"
        }
    )


def shape() -> None:
    files = list(SRC.rglob("*.py"))
    objects, functions = [], []
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                objects.append((attributes(node), f"{file.relative_to(SRC)}:{node.name}"))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append((node.end_lineno - node.lineno + 1, f"{file.relative_to(SRC)}:{node.name}"))
    contracts = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    print("modules in the root ", len([f for f in SRC.glob("*.py") if not f.name.startswith("__")]))
    print("layers              ", max(len(c.get("layers", ())) for c in contracts))
    print("lines of Python     ", sum(len(f.read_text().splitlines()) for f in files), "in", len(files), "files")
    print("largest objects     ", sorted(objects, reverse=True)[:8])
    print("function lines      ", "median", statistics.median(n for n, _ in functions), "longest", max(functions))


def walk() -> None:
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

    visited: list[str] = []

    def profile(frame, event, _):
        if event == "call" and "/src/quiesce/" in frame.f_code.co_filename:
            module = frame.f_code.co_filename.split("/src/quiesce/")[1][:-3]
            if not frame.f_code.co_name.startswith("<") and "scripted" not in module:
                visited.append(module)

    def report(label: str) -> None:
        sys.setprofile(None)
        hops = sum(a != b for a, b in zip(visited, visited[1:]))
        print(
            f"{label:20} {len(visited)} calls, {len(set(visited))} modules, {hops} hops; most visited",
            collections.Counter(visited).most_common(5),
        )
        visited.clear()

    async def main() -> None:
        agent = Agent(ScriptedModel([Say("I look. ", chunk=99), Call("look", {"x": "1"})], "Done."), tools=[look])
        sys.setprofile(profile)
        await agent.invoke_async("go")
        report("one run")
        agent = Agent(ScriptedModel([Call("linger", {"x": "1"})], "Done."), tools=[linger])
        run = agent.start("go")
        async for event in run:
            if isinstance(event, ToolStarted):
                await asyncio.sleep(0)
                sys.setprofile(profile)
                run.cancel("enough")
        await run.stopped()
        report("one stop")

    asyncio.run(main())


if __name__ == "__main__":
    shape()
    walk()
