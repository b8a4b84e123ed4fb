"""The agents of a server, by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..agent import Agent, AnyAgent
from ..errors import ConfigurationError
from .problems import Problem


class AgentTable:
    """The agents that runs can be started with. The first one is the default."""

    def __init__(self, agents: Iterable[AnyAgent]) -> None:
        self.by_name: Final[dict[str, Agent]] = {}
        for agent in agents:
            if agent.name in self.by_name:
                raise ConfigurationError(
                    f"Two agents are named {agent.name!r}.", todo="Give one of them a different Agent(name=...)."
                )
            self.by_name[agent.name] = agent
        if not self.by_name:
            raise ConfigurationError("A server needs at least one agent.", todo="Pass one or more agents.")

    def get(self, name: str | None) -> AnyAgent:
        """The agent of this name, or the default one for None. Raises `Problem` when there is none."""
        if name is None:
            return next(iter(self.by_name.values()))
        agent = self.by_name.get(name)
        if agent is None:
            raise Problem(422, "no_such_agent", "There is no agent of this name.", todo="GET /agents lists them.")
        return agent
