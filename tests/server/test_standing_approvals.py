"""Approvals that are given in advance: for a session, or for calls with certain arguments, until some time."""

from __future__ import annotations

import re
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce import Agent, tool
from quiesce.errors import StoreUnavailable
from quiesce.messages import UserMessage
from quiesce.models.base import ModelRequest
from quiesce.models.scripted import Call, ScriptedModel
from quiesce.server import create_app
from quiesce.server.schemas import ArgumentPattern
from quiesce.server.standing_approvals import _fits
from quiesce.sessions.stores.sqlite import SQLiteStore

from .support import read_events, serving, start, two_keys

pytestmark = pytest.mark.promise("P4", "P8")


class Payer(ScriptedModel):
    """Calls `pay` with the words of the last prompt, once."""

    def stream(self, request: ModelRequest) -> Any:
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            to, _, note = last.text.partition(" ")
            return ScriptedModel([Call("pay", {"to": to, "note": note})], name="scripted").stream(request)
        return ScriptedModel("Done.", name="scripted").stream(request)


def bank(description: str = "Pay.") -> tuple[Agent, list[str]]:
    paid: list[str] = []

    @tool(requires_approval=True, description=description)
    def pay(to: str, note: str = "") -> str:
        paid.append(to)
        return "paid"

    return Agent(Payer(), tools=[pay], name="bank"), paid


def ask(client: httpx2.Client, prompt: str, session: str = "s") -> dict[str, Any]:
    run_id = start(client, prompt, session=session)
    read_events(client, run_id)
    return client.get(f"/runs/{run_id}").json()["run"]


def answer(client: httpx2.Client, run: dict[str, Any], given: Any = True, **more: Any) -> httpx2.Response:
    body = {"answers": [{"id": run["interrupts"][0]["id"], "answer": given, **more}]}
    response = client.post(f"/runs/{run['id']}/resume", json=body)
    if response.status_code == 201:
        read_events(client, response.json()["run"]["id"])
    return response


def test_once_for_the_session_and_taken_back():
    agent, paid = bank()
    with serving(agent) as served, served.client() as client:
        run = ask(client, "Ann")
        assert answer(client, run).status_code == 201
        run = ask(client, "Ann")
        assert run["interrupts"], "an approval is for one call"
        answer(client, run, remember={"scope": "session"})
        approved = ask(client, "Bob")
        assert (approved["stop_reason"], paid) == ("end_turn", ["Ann", "Ann", "Bob"])
        (rule,) = client.get("/approvals").json()["approvals"]
        (record,) = approved["answers"]
        assert (record["standing"], record["by"], record["decision"]) == (rule["id"], "local", "approved")
        assert ask(client, "Ann", session="other")["interrupts"], "it is for one session"
        assert client.delete(f"/approvals/{rule['id']}").status_code == 204
        assert client.delete(f"/approvals/{rule['id']}").status_code == 404
        assert ask(client, "Ann")["interrupts"]
        assert client.get("/approvals").json() == {"approvals": []}


PATTERNS: list[tuple[Any, list[str], list[str]]] = [
    ({"to": {"equals": "Ann"}}, ["Ann", "Ann gift"], ["ann", "Anna", "Bob"]),
    ({"to": {"like": "A*n"}}, ["Ann", "Alan"], ["Bob", "Anna"]),
    ({"to": {"equals": "Ann"}, "note": {"like": "*"}}, ["Ann x y"], ["Ann x\ny", "Bob x"]),
    ({"note": {"equals": ""}}, ["Bob"], ["Bob now"]),
]


def test_a_pattern_of_arguments():
    agent, _ = bank()
    with serving(agent) as served, served.client() as client:
        for pattern, covered, asked in PATTERNS:
            remember = {"scope": "agent", "arguments": pattern, "expires_in": 600}
            assert answer(client, ask(client, "Ann"), remember=remember).status_code == 201
            for prompt in covered:
                assert not ask(client, prompt)["interrupts"], (pattern, prompt)
            for prompt in asked:
                assert ask(client, prompt)["interrupts"], (pattern, prompt)
            (rule,) = client.get("/approvals").json()["approvals"]
            assert client.delete(f"/approvals/{rule['id']}").status_code == 204


def test_it_ends_in_time(monkeypatch: pytest.MonkeyPatch):
    agent, _ = bank()
    with serving(agent) as served, served.client() as client:
        answer(client, ask(client, "Ann"), remember={"scope": "agent", "expires_in": 60})
        assert not ask(client, "Ann", session="t")["interrupts"]
        import quiesce.server.standing_approvals as module

        later = type("Clock", (), {"time": staticmethod(lambda: module_time() + 61)})
        module_time = module.time.time
        monkeypatch.setattr(module, "time", later)
        assert ask(client, "Ann", session="u")["interrupts"]
        assert client.get("/approvals").json() == {"approvals": []}


def test_a_later_no_wins():
    agent, paid = bank()
    with serving(agent) as served, served.client() as client:
        waiting = ask(client, "Ann", session="early")  # asked before the approval was given
        answer(client, ask(client, "Ann"), remember={"scope": "agent", "expires_in": 600})
        assert not ask(client, "Ann", session="y")["interrupts"]
        assert answer(client, waiting, {"type": "deny", "reason": "not any more"}).status_code == 201
        assert client.get("/approvals").json() == {"approvals": []}
        assert ask(client, "Ann", session="z")["interrupts"]
        assert paid == ["Ann", "Ann"]


NONSENSE: list[Any] = [
    {"scope": "agent"},
    {"arguments": {"nothing": {"equals": 1}}},
    {"arguments": {"to": {}}},
    {"arguments": {"to": {"equals": "Ann", "like": "A*"}}},
    {"arguments": {"to": {"equals": "Bob"}}},
    {"expires_in": 0},
    {"scope": "world"},
]


def test_what_makes_no_sense_is_refused_and_approves_nothing():
    agent, paid = bank()
    with serving(agent) as served, served.client() as client:
        run = ask(client, "Ann")
        for remember in NONSENSE:
            assert answer(client, run, remember=remember).status_code == 422, remember
        assert answer(client, run, {"type": "approve", "arguments": {"to": 5}}, remember={}).status_code == 422
        assert answer(client, run, False, remember={}).status_code == 422
        assert client.get("/approvals").json() == {"approvals": []}
        assert paid == []
        assert answer(client, run).status_code == 201


def test_an_approval_is_of_its_key_alone():
    ann, bob, keys = two_keys()
    agent, _ = bank()
    with serving(agent, keys=keys) as served, served.client(ann) as anns, served.client(bob) as bobs:
        answer(anns, ask(anns, "Ann"), remember={"scope": "agent", "expires_in": 600})
        (rule,) = anns.get("/approvals").json()["approvals"]
        assert bobs.get("/approvals").json() == {"approvals": []}
        assert bobs.delete(f"/approvals/{rule['id']}").status_code == 404
        assert ask(bobs, "Ann")["interrupts"]
        assert not ask(anns, "Ann", session="t")["interrupts"]


def test_it_survives_a_restart_and_not_a_change_of_the_tool(tmp_path: Path):
    def open_bank(description: str = "Pay.") -> Any:
        return serving(app=create_app(bank(description)[0], store=tmp_path / "s.db"))

    with open_bank() as served, served.client() as client:
        first = answer(client, ask(client, "Ann"), remember={"scope": "session"}).json()["run"]["id"]
        deleted = answer(client, ask(client, "Ann", session="gone"), remember={"scope": "session"})
        assert deleted.status_code == 201
        assert client.delete("/sessions/gone").status_code == 204
        assert ask(client, "Ann", session="gone")["interrupts"], "a new session of that name begins without"
    with open_bank() as served, served.client() as client:
        assert [each["session"] for each in client.get("/approvals").json()["approvals"]] == ["s"]
        assert not ask(client, "Bob")["interrupts"]
        (record,) = client.get(f"/runs/{first}").json()["run"]["answers"]
        assert (record["decision"], record["by"], record["standing"]) == ("approved", "local", "")
    with open_bank("Pay, and tell.") as served, served.client() as client:
        assert ask(client, "Bob")["interrupts"]


@settings(max_examples=300)
@given(text=st.text("ab\n", max_size=9), pattern=st.text("ab*\n", max_size=7))
def test_a_pattern_fits_what_the_same_regular_expression_fits(text: str, pattern: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None
    assert _fits(ArgumentPattern(like=pattern), text) == expected


def test_a_pattern_with_many_stars_takes_no_time() -> None:
    """A regular expression would take years for it."""
    assert not _fits(ArgumentPattern(like="*a" * 40 + "*b"), "a" * 10_000)


class Failing(SQLiteStore):
    """A store that can be told to fail."""

    fails = False

    def acquire(self, *args: Any, **options: Any) -> Any:
        if not self.fails:
            return super().acquire(*args, **options)
        failed: Future[Any] = Future()
        failed.set_exception(StoreUnavailable("the store is away"))
        return failed


@pytest.mark.promise("P9")
def test_what_was_taken_back_while_the_store_failed_does_not_come_back(tmp_path: Path):
    path = tmp_path / "s.db"
    store = Failing(path)
    with serving(app=create_app(bank()[0], store=store)) as served, served.client() as client:
        answer(client, ask(client, "Ann"), remember={"scope": "agent", "expires_in": 600})
        (rule,) = client.get("/approvals").json()["approvals"]
        store.fails = True
        assert client.delete(f"/approvals/{rule['id']}").status_code == 503
        assert client.get("/approvals").json() == {"approvals": []}
        store.fails = False
        assert ask(client, "Ann", session="other")["interrupts"]
        assert client.delete(f"/approvals/{rule['id']}").status_code == 204
        assert client.delete(f"/approvals/{rule['id']}").status_code == 404
    with serving(app=create_app(bank()[0], store=path)) as served, served.client() as client:
        assert client.get("/approvals").json() == {"approvals": []}
