"""A task with three approvals, two sub-agents, edits and a command, in a folder that can be compared afterwards."""

from __future__ import annotations

import asyncio
from typing import Any

from quiesce import Agent, tool
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.tools.tool import Tool


class Workshop:
    """A folder, the agents that work in it, and what they did to it."""

    def __init__(self) -> None:
        self.folder: dict[str, str] = {"readme": "as it was"}
        self.log: list[str] = []
        self.lead_model = ScriptedModel(
            [Call("edit", {"path": "a"}, id="a")],
            [Call("reviewer", {"prompt": "Review."}, id="r"), Call("run", {"path": "built"}, id="x")],
            [Call("edit", {"path": "b"}, id="b"), Call("edit", {"path": "readme"}, id="m")],
            [Call("tester", {"prompt": "Test."}, id="t")],
            then="Done.",
        )
        self.reviewer_model = ScriptedModel([Call("note", {"path": "review"}, id="n")], then="Reviewed.")
        self.tester_model = ScriptedModel([Call("run", {"path": "tests"}, id="y")], then="Tested.")

    @property
    def requests(self) -> int:
        """How often a model was called."""
        return sum(len(model.requests) for model in (self.lead_model, self.reviewer_model, self.tester_model))

    def agent(self, **options: Any) -> Agent:
        """The lead, as a new process makes it: the models go on where they are."""
        reviewer = Agent(self.reviewer_model, name="reviewer", tools=[self._writing("note")])
        tester = Agent(self.tester_model, name="tester", tools=[self._writing("run")])
        tools = [self._writing("edit", requires_approval=True), self._writing("run"), reviewer, tester]
        return Agent(self.lead_model, name="lead", tools=tools, **options)

    def _writing(self, name: str, **options: Any) -> Tool:
        @tool(name=name, **options)
        async def write(path: str) -> dict[str, str | None]:
            before = self.folder.get(path)
            await asyncio.sleep(0.1)
            self.folder[path] = f"written by {name}"
            self.log.append(f"+{path}")
            await asyncio.sleep(0.1)
            return {"before": before}

        @write.undo
        async def restore(path: str, result: dict[str, str | None]) -> None:
            await asyncio.sleep(0.1)
            before = result["before"]
            if before is None:
                del self.folder[path]
            else:
                self.folder[path] = before
            self.log.append(f"-{path}")

        return write
