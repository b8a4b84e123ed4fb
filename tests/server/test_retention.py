"""What the server keeps: in memory for each owner, in the store for all, and what is deleted stays deleted."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from quiesce import Agent
from quiesce.models.scripted import Say, ScriptedModel, Used
from quiesce.server import Settings, create_app
from quiesce.server.memory_use import size_of
from quiesce.sessions.records import holder
from quiesce.sessions.stores.resolve import resolve_store

from .support import Served, read_events, serving, start, talker, two_keys

pytestmark = [pytest.mark.promise("P3", "P8"), pytest.mark.timeout(60)]

# Fewer runs and sessions than either owner has.
FEW = Settings(keep_runs=5, keep_sessions=5)


def paid(text: str = "Good morning.") -> Agent:
    return Agent(ScriptedModel(then=[Say(text), Used(input=100, output=10)]))


def run_to_end(served: Served, client: httpx2.Client, owner: str, prompt: str = "Hello", **body: Any) -> str:
    run_id = start(client, prompt, **body)
    served.at_rest(run_id, owner)
    return run_id


def calls(client: httpx2.Client) -> int:
    return client.get("/usage").json()["total"]["calls"]


class Restarted:
    """A server on a store that is restarted at will, with two owners."""

    def __init__(self, path: Path, settings: Settings = FEW, agent: Agent | None = None) -> None:
        self.ann, self.bob, self.keys = two_keys()
        self.path, self.settings, self.agent = path / "sessions.db", settings, agent or paid()

    def serving(self) -> Any:
        return serving(app=create_app(self.agent, keys=self.keys, settings=self.settings, store=self.path))


def test_many_runs_of_one_key_do_not_hide_those_of_another(tmp_path: Path):
    place = Restarted(tmp_path)
    with place.serving() as served, served.client(place.ann) as ann, served.client(place.bob) as bob:
        named = [run_to_end(served, ann, "ann", f"prompt {n}", session=f"mine-{n}") for n in range(3)]
        alone = [run_to_end(served, ann, "ann", f"prompt {n}") for n in range(3, 6)]
        for _ in range(12):
            run_to_end(served, bob, "bob")
        assert (calls(ann), calls(bob)) == (6, 12)
    with place.serving() as served, served.client(place.ann) as ann, served.client(place.bob) as bob:
        assert len(ann.get("/runs").json()["runs"]) == 5
        for number, run_id in enumerate(named + alone):
            shown = ann.get(f"/runs/{run_id}").json()
            assert shown["run"]["prompt"] == f"prompt {number}"
            assert [len(message["content"]) for message in shown["messages"]] == [1, 1]
            assert read_events(ann, run_id)[-1][1] == "run_ended"
            assert bob.get(f"/runs/{run_id}").status_code == 404
        for number in range(3):
            assert ann.get(f"/sessions/mine-{number}").json()["session"]["messages"] == 2
        assert (calls(ann), calls(bob)) == (6, 12)
        assert ann.delete("/sessions/mine-0").status_code == 204
        assert ann.get("/sessions/mine-0").status_code == 404
        assert ann.get(f"/runs/{named[0]}").status_code == 404
        assert calls(ann) == 6


def test_a_run_that_was_dropped_from_memory_is_read_from_the_store(tmp_path: Path):
    place = Restarted(tmp_path)
    with place.serving() as served, served.client(place.ann) as ann:
        runs = [run_to_end(served, ann, "ann", f"prompt {n}", session=f"s{n}") for n in range(12)]
        listed = [run["id"] for run in ann.get("/runs").json()["runs"]]
        assert listed == runs[:-6:-1]
        assert ann.get(f"/runs/{runs[0]}").json()["run"]["prompt"] == "prompt 0"
        assert [run["id"] for run in ann.get("/runs").json()["runs"]] == listed
        assert ann.get("/sessions/s0").json()["session"]["messages"] == 2
        # The conversation goes on where it was.
        again = run_to_end(served, ann, "ann", "again", session="s0")
        assert len(ann.get(f"/runs/{again}").json()["messages"]) == 4
        assert calls(ann) == 13
        assert ann.delete(f"/runs/{runs[1]}").status_code == 204
        assert ann.get(f"/runs/{runs[1]}").status_code == 404
        assert calls(ann) == 13


def test_a_session_that_is_not_in_memory_still_belongs_to_its_agent(tmp_path: Path):
    place = Restarted(tmp_path)
    other = talker(name="other")
    app = create_app(place.agent, other, keys=place.keys, store=place.path)
    with serving(app=app) as served, served.client(place.ann) as ann:
        run_to_end(served, ann, "ann", session="mine")
    settings = Settings(keep_sessions=0)
    app = create_app(place.agent, other, keys=place.keys, settings=settings, store=place.path)
    with serving(app=app) as served, served.client(place.ann) as ann:
        refused = ann.post("/runs", json={"prompt": "x", "session": "mine", "agent": "other"})
        assert refused.json()["error"]["code"] == "other_agent"


# --- Deleting -------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P4")
@pytest.mark.parametrize("session", [None, "mine"])
def test_a_deleted_run_does_not_come_back(tmp_path: Path, session: str | None):
    place = Restarted(tmp_path, agent=paid("It was the butler."))
    with place.serving() as served, served.client(place.ann) as ann:
        run_id = run_to_end(served, ann, "ann", "Who was it?", session=session)
        kept = run_to_end(served, ann, "ann", "And now?", session=session)
        assert ann.delete(f"/runs/{run_id}").status_code == 204
        assert ann.delete(f"/runs/{run_id}").status_code == 404
        assert calls(ann) == 2
    with place.serving() as served, served.client(place.ann) as ann:
        assert [run["id"] for run in ann.get("/runs").json()["runs"]] == [kept]
        for path in ("", "/events"):
            assert ann.get(f"/runs/{run_id}{path}").status_code == 404
        assert calls(ann) == 2
        assert ann.delete(f"/runs/{kept}").status_code == 204
    with place.serving() as served, served.client(place.ann) as ann:
        assert ann.get("/runs").json()["runs"] == []
        assert calls(ann) == 2
        sessions = [each["name"] for each in ann.get("/sessions").json()["sessions"]]
        assert sessions == []
    store = resolve_store(place.path)
    left = {info.name: len(store.load(info.name).result().messages) for info in store.sessions().result()}
    # What was said in a session that the client named is that session's, until it is deleted.
    kept_apart = {"ann/.usage": 0, "ann/.audit": 0}
    assert left == (kept_apart if session is None else kept_apart | {"ann/mine": 4})
    store.close().result()


@pytest.mark.promise("P6")
def test_usage_survives_deletions_and_restarts(tmp_path: Path):
    place = Restarted(tmp_path)
    expected = {"calls": 0, "input": 0}
    for _ in range(3):
        with place.serving() as served, served.client(place.ann) as ann:
            for number in range(7):
                run_id = run_to_end(served, ann, "ann", session=f"s{number}")
                expected["calls"] += 1
                if number % 2:
                    assert ann.delete(f"/runs/{run_id}").status_code == 204
            assert ann.delete("/sessions/s0").status_code == 204
            total = ann.get("/usage").json()["total"]
            expected["input"] = 100 * expected["calls"]
            assert (total["calls"], total["input"]["value"]) == tuple(expected.values())


@pytest.mark.promise("P6", "P9")
def test_a_crash_between_counting_and_deleting_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = Restarted(tmp_path)
    with place.serving() as served, served.client(place.ann) as ann:
        runs = [run_to_end(served, ann, "ann") for _ in range(2)]
        store: Any = served.app.services.history._stored.store  # pyright: ignore[reportPrivateUsage]

        def fail(*_: Any) -> Any:
            raise ConnectionError("the process was killed here")

        with monkeypatch.context() as patch:
            patch.setattr(type(store), "delete_run", fail)
            assert ann.delete(f"/runs/{runs[0]}").status_code == 500
    with place.serving() as served, served.client(place.ann) as ann:
        assert [run["id"] for run in ann.get("/runs").json()["runs"]] == [runs[1]]
        assert calls(ann) == 2


@pytest.mark.promise("P9")
def test_a_session_that_could_not_be_deleted_keeps_its_runs(tmp_path: Path):
    place = Restarted(tmp_path)
    with place.serving() as served, served.client(place.ann) as ann:
        run_id = run_to_end(served, ann, "ann", session="s")
        other = resolve_store(place.path)  # as another process has it
        lease = other.acquire("ann/s", holder("another process"), seconds=60).result().lease
        assert ann.delete("/sessions/s").status_code == 409
        assert calls(ann) == 1
        other.release(lease).result()
        other.close().result()
    with place.serving() as served, served.client(place.ann) as ann:
        assert [run["id"] for run in ann.get("/runs").json()["runs"]] == [run_id]
        assert calls(ann) == 1
        assert ann.delete("/sessions/s").status_code == 204
        assert calls(ann) == 1
    with place.serving() as served, served.client(place.ann) as ann:
        assert (ann.get("/sessions").json()["sessions"], calls(ann)) == ([], 1)


@pytest.mark.promise("P9")
def test_a_damaged_session_can_be_deleted(tmp_path: Path):
    place = Restarted(tmp_path)
    with place.serving() as served, served.client(place.ann) as ann:
        run_to_end(served, ann, "ann", session="s")
    with closing(sqlite3.connect(place.path)) as database, database:
        database.execute("UPDATE messages SET payload = ?", (b"{\xff",))
    with place.serving() as served, served.client(place.ann) as ann:
        assert ann.delete("/sessions/s").status_code == 204
        assert (ann.get("/sessions").json()["sessions"], calls(ann)) == ([], 1)


# --- Idempotency keys -------------------------------------------------------------------------------------------------


def keyed(client: httpx2.Client, key: str, **body: Any) -> httpx2.Response:
    return client.post("/runs", json={"prompt": "x", **body}, headers={"Idempotency-Key": key})


@pytest.mark.promise("P9")
@pytest.mark.parametrize("session", [None, "mine"])
def test_an_idempotency_key_survives_a_restart(tmp_path: Path, session: str | None):
    place = Restarted(tmp_path)
    with place.serving() as served, served.client(place.ann) as ann:
        first = keyed(ann, "k", session=session).json()["run"]["id"]
        served.at_rest(first, "ann")
    for new in ("one", "two"):
        with place.serving() as served, served.client(place.ann) as ann, served.client(place.bob) as bob:
            again = keyed(ann, "k", session=session)
            assert (again.status_code, again.json()["run"]["id"]) == (200, first)
            assert keyed(ann, "k", session=session, timeout=5).status_code == 422
            assert keyed(bob, "k", session=session).json()["run"]["id"] != first
            other = keyed(ann, new, session=session)
            assert other.status_code == 201
            served.at_rest(other.json()["run"]["id"], "ann")


@pytest.mark.promise("P9")
@pytest.mark.parametrize("session", [None, "mine"])
def test_a_run_that_was_accepted_is_in_the_store(tmp_path: Path, session: str | None):
    """The server is stopped at once after its answer, when the run has hardly begun."""
    place = Restarted(tmp_path)
    for number in range(5):
        with place.serving() as served, served.client(place.ann) as ann:
            run_id = start(ann, f"prompt {number}", session=session)
        with place.serving() as served, served.client(place.ann) as ann:
            shown = ann.get(f"/runs/{run_id}")
            assert shown.status_code == 200, shown.text
            assert shown.json()["run"]["prompt"] == f"prompt {number}"


def test_one_owner_cannot_evict_the_keys_of_another(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("quiesce.server.idempotency._MAX_KEYS", 10)
    ann_key, bob_key, keys = two_keys()
    with serving(talker(), keys=keys) as served, served.client(ann_key) as ann, served.client(bob_key) as bob:
        first = keyed(ann, "k").json()["run"]["id"]
        for number in range(20):
            keyed(bob, f"k{number}")
        again = keyed(ann, "k")
        assert (again.status_code, again.json()["run"]["id"]) == (200, first)


# --- Memory -----------------------------------------------------------------------------------------------------------

MIB = 1 << 20


def held_bytes(served: Served) -> int:
    """The memory of the messages that the server can still reach, each counted once."""

    def measure() -> int:
        services = served.app.services
        owners = ("ann", "bob")
        messages = {
            id(each): each for owner in owners for run in services.runs.of(owner).values() for each in run.messages
        }
        for owner in owners:
            for session in services.sessions.newest_first(owner):
                messages.update((id(each), each) for each in session.messages)
        return sum(size_of(message) for message in messages.values())

    return served.do(measure)


@pytest.mark.promise("P5", "P8")
@pytest.mark.parametrize(
    ("stored", "session"),
    [
        (False, "named"),
        (True, None),
        pytest.param(False, None, marks=pytest.mark.proof),
        pytest.param(True, "named", marks=pytest.mark.proof),
    ],
)
def test_conversations_count_as_memory(tmp_path: Path, *, stored: bool, session: str | None):
    ann_key, bob_key, keys = two_keys()
    settings = Settings(keep_bytes=8 * MIB)
    app = create_app(talker(), keys=keys, settings=settings, store=tmp_path / "s.db" if stored else None)
    with serving(app=app) as served, served.client(ann_key) as ann, served.client(bob_key) as bob:
        small = run_to_end(served, ann, "ann", "small")
        for number in range(6):
            name = None if session is None else f"{session}-{number}"
            last = run_to_end(served, bob, "bob", f"{number}" + "x" * (2 * MIB), session=name)
        assert held_bytes(served) < 8 * MIB
        assert ann.get(f"/runs/{small}").status_code == 200
        assert small in [run["id"] for run in ann.get("/runs").json()["runs"]]
        assert bob.get(f"/runs/{last}").status_code == 200
        if stored:
            assert all(
                len(bob.get(f"/runs/{run['id']}").json()["messages"]) == 2 for run in bob.get("/runs").json()["runs"]
            )


def test_a_message_that_is_shared_counts_once():
    ann_key, _, keys = two_keys()
    with serving(talker(), keys=keys, settings=Settings(keep_bytes=8 * MIB)) as served, served.client(ann_key) as ann:
        runs = [run_to_end(served, ann, "ann", "x" * (3 * MIB), session="s")]
        runs += [run_to_end(served, ann, "ann", f"{n}", session="s") for n in range(6)]
        assert len(ann.get("/runs").json()["runs"]) == len(runs)


def test_sizes_are_those_of_all_that_a_message_holds():
    text = "x" * 1000
    assert 2 * sys.getsizeof(text) < size_of({"a": [text], "b": (text + "y", 1)}) < 3 * sys.getsizeof(text)
