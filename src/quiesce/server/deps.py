"""The deps of runs on a server: a function of the operator makes them for each run."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import anyio
from starlette.requests import Request

from ..agent import AnyAgent
from ..errors import ConfigurationError
from ..run.argument_checks import check_deps
from ..run.options import RunOptions
from .problems import Problem


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run that is about to start, as the function that is given as `deps=` sees it.

    owner     the owner of the API key
    agent     the name of the agent
    session   the name of the session, as the owner calls it; None without one
    headers   the headers of the request, with names in lower case, without `authorization`
    """

    owner: str
    agent: str
    session: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


DepsFactory: TypeAlias = Callable[[RunRequest], object | Awaitable[object]]


class DepsSource:
    """Makes the deps of each run. Raises `ConfigurationError` for an agent that needs deps where there are none."""

    def __init__(self, factory: DepsFactory | None, agents: Iterable[AnyAgent], timeout: float) -> None:
        if factory is not None and not callable(factory):
            raise ConfigurationError(
                f"deps={factory!r} is not a function.", todo="Use a function that takes a RunRequest and returns deps."
            )
        self._factory: Final = factory
        self._timeout: Final = timeout
        if factory is None:
            for agent in agents:
                _check_without(agent)

    async def options(self, http: Request, owner: str, agent: AnyAgent, session: str | None) -> RunOptions[Any]:
        """The options of `agent.start` for one run: `deps`, if there are any. Raises `Problem` when that takes long."""
        if self._factory is None:
            return {}
        headers = {name: value for name, value in http.headers.items() if name != "authorization"}
        made = self._factory(RunRequest(owner, agent.name, session, headers))
        if inspect.isawaitable(made):
            with anyio.move_on_after(self._timeout) as scope:
                return {"deps": await made}
            assert scope.cancelled_caught
            raise Problem(503, "deps_not_ready", "The server could not prepare the run in time.", todo="Try again.")
        return {"deps": made}


def _check_without(agent: AnyAgent) -> None:
    try:
        check_deps(None, agent.config.deps_type, agent.name)
    except ConfigurationError as error:
        raise ConfigurationError(
            error.what, todo="Give the server a function that makes them: deps=lambda request: ..."
        ) from None
