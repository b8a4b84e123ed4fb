"""Tasks over HTTP: a stop with undo while a person is asked, and an undo after a restart of the server."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from quiesce.server import create_app

from ..server.support import Served, serving
from .shop import Shop

pytestmark = pytest.mark.promise("P4", "P9")


def order(served: Served, client: httpx2.Client, most: int) -> str:
    """Approve so many orders; the last run, which waits for the next answer."""
    run_id = client.post("/runs", json={"prompt": "go", "session": "s"}).json()["run"]["id"]
    served.at_rest(run_id)
    for number in range(most):
        answers = [{"id": f"o{number}:approval", "answer": {"type": "approve"}}]
        run_id = client.post(f"/runs/{run_id}/resume", json={"answers": answers}).json()["run"]["id"]
        served.at_rest(run_id)
    return run_id


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_stop_with_undo_while_a_person_is_asked(tmp_path: Path, is_stored: bool) -> None:
    shop = Shop()
    store = tmp_path / "store.db" if is_stored else None
    with serving(app=create_app(shop.agent(9), store=store)) as served, served.client() as client:
        run_id = order(served, client, 2)
        stopped = client.post(f"/runs/{run_id}/cancel?wait=5", json={"undo": True}).json()
        assert stopped["accepted"]
        assert stopped["run"]["interrupts"] == []
        assert [(each["call_id"], each["outcome"]) for each in stopped["receipt"]["undo"]] == [
            ("o1", "undone"),
            ("o0", "undone"),
        ]
        assert shop.log == ["+item0", "+item1", "-item1", "-item0"]


def test_all_runs_of_a_task_name_it(tmp_path: Path) -> None:
    shop = Shop()
    store = tmp_path / "store.db"

    def tasks(client: httpx2.Client) -> list[str]:
        return [each["task"] for each in client.get("/runs").json()["runs"]]

    with serving(app=create_app(shop.agent(9), store=store)) as served, served.client() as client:
        last = order(served, client, 2)
        first = client.get("/runs").json()["runs"][-1]["id"]
        assert tasks(client) == [first] * 3
        assert client.get(f"/runs/{last}").json()["receipt"]["task"]["used"]["tool_calls"] == 3
    with serving(app=create_app(shop.agent(0), store=store)) as served, served.client() as client:
        assert tasks(client) == [first] * 3


def test_an_undo_after_a_restart(tmp_path: Path) -> None:
    shop = Shop()
    store = tmp_path / "store.db"
    with serving(app=create_app(shop.agent(9), store=store)) as served, served.client() as client:
        run_id = order(served, client, 2)
    with serving(app=create_app(shop.agent(0), store=store)) as served, served.client() as client:
        assert client.get(f"/runs/{run_id}").json()["run"]["undoable"] == ["order"]
        undone = client.post(f"/runs/{run_id}/undo").json()
        assert undone["is_done"]
        assert [each["outcome"] for each in undone["receipt"]["undo"]] == ["undone", "undone"]
        assert client.get(f"/runs/{run_id}").json()["run"]["undoable"] == []
        assert shop.log == ["+item0", "+item1", "-item1", "-item0"]
        assert client.post("/runs", json={"prompt": "next", "session": "s"}).status_code == 201


def test_a_task_that_a_newer_prompt_has_followed_is_not_undone_after_a_restart(tmp_path: Path) -> None:
    shop = Shop()
    store = tmp_path / "store.db"
    with serving(app=create_app(shop.agent(1), store=store)) as served, served.client() as client:
        run_id = order(served, client, 1)
        served.at_rest(client.post("/runs", json={"prompt": "next", "session": "s"}).json()["run"]["id"])
    with serving(app=create_app(shop.agent(0), store=store)) as served, served.client() as client:
        answer = client.post(f"/runs/{run_id}/undo")
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "too_late")
        assert shop.log == ["+item0"]
