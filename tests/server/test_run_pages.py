"""The list of runs in pages, and by agent, time and words; the usage by agent, session and day."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from quiesce import Agent
from quiesce.models.scripted import Say, ScriptedModel, Used
from quiesce.server import Settings

from .support import read_events, serving, start, two_keys

pytestmark = pytest.mark.feature


def speaker(name: str) -> Agent:
    return Agent(ScriptedModel(then=[Say("Hello."), Used(input=10, output=2)]), name=name)


def ids(client: httpx2.Client, query: str = "") -> list[str]:
    return [run["id"] for run in client.get(f"/runs{query}").json()["runs"]]


def test_every_run_is_on_exactly_one_page_while_others_start_and_go():
    ann, bob, keys = two_keys()
    settings = Settings(max_runs_per_key=1000)
    with serving(speaker("one"), keys=keys, settings=settings) as served, served.client(ann) as client:
        started = [start(client, f"number {n}", session=f"s{n % 5}") for n in range(23)]
        for run_id in started:
            served.at_rest(run_id, "ann")
        seen: list[str] = []
        query = "?limit=5"
        while True:
            page = client.get(f"/runs{query}").json()
            seen += [run["id"] for run in page["runs"]]
            if page["next"] is None:
                break
            query = f"?limit=5&before={page['next']}"
            start(client, "a newer one", session="new")  # is on no later page
            client.delete(f"/runs/{seen[-1]}")  # the run that the next page begins after is gone
        assert seen == started[::-1]
        assert client.get("/runs?before=nonsense").status_code == 422
        with served.client(bob) as other:
            assert ids(other) == []


def test_runs_by_agent_time_and_words():
    with serving(speaker("one"), speaker("two")) as served, served.client() as client:
        first = start(client, "Tell me of Rome", session="travel")
        second = start(client, "tell me of Oslo", agent="two")
        for run_id in (first, second):
            read_events(client, run_id)
        middle = client.get(f"/runs/{second}").json()["run"]["created_at"]
        assert ids(client, "?agent=two") == [second]
        assert ids(client, "?search=TELL rome") == [first]
        assert ids(client, "?search=travel") == [first]
        assert ids(client, f"?since={middle!r}") == [second]
        assert ids(client, f"?until={middle!r}") == [first]
        assert ids(client, "?since=1e11") == []
        assert client.get("/runs?since=never").status_code == 422
        assert client.get("/runs", params={"search": "e " * 10_000}).status_code == 422  # would hold the loop


@pytest.mark.promise("P6")
def test_usage_by_agent_session_and_day():
    def sums(report: Any) -> tuple[int, int]:
        return report["total"]["calls"], report["total"]["input"]["value"]

    with serving(speaker("one"), speaker("two")) as served, served.client() as client:
        for session, agent in (("a", "one"), ("a", "one"), ("b", "one"), ("c", "two")):
            read_events(client, start(client, "Hello", session=session, agent=agent))
        report = client.get("/usage").json()
        assert sums(report) == (4, 40)
        assert {row["agent"]: row["usage"]["calls"] for row in report["days"]} == {"one": 3, "two": 1}
        by_session = [(each["session"], each["agent"], each["runs"]) for each in report["sessions"]]
        assert by_session == [("c", "two", 1), ("b", "one", 1), ("a", "one", 2)]
        day = report["days"][0]["day"]
        assert sums(client.get(f"/usage?agent=one&since={day}&until={day}").json()) == (3, 30)
        assert sums(client.get("/usage?session=a").json()) == (2, 20)
        assert client.get("/usage?until=2020-01-01").json()["total"]["calls"] == 0
        assert client.get("/usage?since=yesterday").status_code == 422
        compact = day.replace("-", "")
        assert sums(client.get(f"/usage?agent=one&since={compact}&until={compact}").json()) == (3, 30)
