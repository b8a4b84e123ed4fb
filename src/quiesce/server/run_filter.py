"""Which runs a request lists: by state, session, agent, time and words, a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, get_args

from .endpoint import ApiRequest
from .problems import Problem
from .registry import ServedRun
from .schemas import RunStatus

STATES: Final = get_args(RunStatus)
_MOST: Final = 10**12
# Each word is looked for in each run.
_LONGEST_SEARCH: Final = 1000
_T = TypeVar("_T")
Place = tuple[float, str]
"""The start of a run and its id: where it is in the list."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """What a request for the runs names. None, and an empty text, is for all.

    before   the place of the last run of the page before
    search   words of the prompt, the session, the agent or the id
    """

    state: str | None
    session: str | None
    agent: str | None
    since: float | None
    until: float | None
    search: str
    before: Place | None
    limit: int

    def takes(self, run: ServedRun) -> bool:
        """Whether a run matches the filter."""
        info = run.info
        return (self.state is None or run.status == self.state) and self.fits(
            info.session, info.agent.name, info.created_at, info.prompt, run.id
        )

    def fits(self, session: str | None, agent: str, created_at: float, prompt: str, run_id: str) -> bool:
        """Whether a run is among those that the request names, apart from its state."""
        return (
            (self.session is None or session == self.session)
            and (self.agent is None or agent == self.agent)
            and (self.since is None or created_at >= self.since)
            and (self.until is None or created_at < self.until)
            and (self.before is None or (created_at, run_id) < self.before)
            and all(word in f"{prompt} {session or ''} {agent} {run_id}".lower() for word in self.search.split())
        )

    def page(self, found: Sequence[_T], place_of: Callable[[_T], Place]) -> tuple[Sequence[_T], str | None]:
        """The first of these, as many as were asked for, and where the next page begins."""
        shown = found[: self.limit]
        if len(found) <= self.limit:
            return shown, None
        created_at, run_id = place_of(shown[-1])
        return shown, f"{created_at!r}_{run_id}"


def run_filter(request: ApiRequest) -> RunFilter:
    """What a request for the runs names. Raises `Problem`."""
    query = request.http.query_params
    state = query.get("state")
    if state is not None and state not in STATES:
        raise Problem(422, "invalid", f"`state` must be one of: {', '.join(STATES)}.")
    search = query.get("search", "").lower()
    if len(search) > _LONGEST_SEARCH:
        raise Problem(422, "invalid", f"`search` may have {_LONGEST_SEARCH} characters.")
    return RunFilter(
        state,
        query.get("session"),
        query.get("agent"),
        request.number("since", float, least=0, most=_MOST),
        request.number("until", float, least=0, most=_MOST),
        search,
        _place(query.get("before")),
        int(request.number("limit", int, least=1, most=1000) or 100),
    )


def _place(given: str | None) -> Place | None:
    if given is None:
        return None
    created_at, _, run_id = given.partition("_")
    try:
        return float(created_at), run_id
    except ValueError:
        raise Problem(422, "invalid", "`before` must be `next` of an earlier page.") from None
