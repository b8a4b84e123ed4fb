"""The coding agent of the examples over HTTP: restarts, two users, long tasks, big results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from ..server.support import free_port, read_events, start
from .coding_client import ROOT, CodingSite, User, edits, wait_until_gone, write_files

pytestmark = pytest.mark.promise("P4", "P9")
EXAMPLE = ROOT / "examples" / "coding_agent"


def outcomes(receipt: dict[str, object]) -> list[tuple[str, str]]:
    return [(each["name"], each["outcome"]) for each in receipt["undo"]]  # type: ignore[index,attr-defined]


@pytest.mark.proof
@pytest.mark.leaves("processes")  # the next server, which belongs to all tests
def test_kill_9_in_a_command_and_going_on(site: CodingSite, user: User) -> None:
    marker = "4711.001"
    write_files(user.folder, 3)
    user.ask(*edits(2), [("shell", {"command": f"echo ready; sleep {marker}"})])
    user.approve_all(3)
    user.wait_for_output("ready")
    site.kill()
    assert user.client.get(f"/runs/{user.run_id}").json()["run"]["state"] == "crashed"
    wait_until_gone(marker)
    undone = user.post(f"/runs/{user.run_id}/undo")["receipt"]
    assert outcomes(undone) == [("shell", "not_undone"), ("edit_file", "undone"), ("edit_file", "undone")]
    assert [(user.folder / f"file{n}.txt").read_text() for n in range(2)] == ["old 0\n", "old 1\n"]
    user.ask(*edits(1))
    user.approve_all()
    assert (user.folder / "file0.txt").read_text() == "new 0\n"


@pytest.mark.leaves("processes")  # the next server, which belongs to all tests
def test_kill_9_while_a_person_is_asked(site: CodingSite, user: User) -> None:
    write_files(user.folder, 3)
    user.ask(*edits(3))
    user.approve_all(2)
    (asked,) = user.asked()
    site.kill()
    assert user.client.get(f"/runs/{user.run_id}").json()["run"]["interrupts"][0]["id"] == asked["id"]
    user.answer(asked["id"], {"type": "approve"})
    assert user.receipt()["task"]["used"]["tool_calls"] == 3
    undone = user.post(f"/runs/{user.run_id}/undo")["receipt"]
    assert outcomes(undone) == [("edit_file", "undone")] * 3
    assert [(user.folder / f"file{n}.txt").read_text() for n in range(3)] == [f"old {n}\n" for n in range(3)]


@pytest.mark.leaves("processes")  # the next server, which belongs to all tests
def test_a_deploy_in_the_middle(site: CodingSite, user: User) -> None:
    """One user is asked, the other one's model answers: the question waits for the new process, the answer is cut."""
    with site.user("user10") as busy_user:
        for each in (user, busy_user):
            write_files(each.folder, 2)
        user.ask(*edits(2))
        user.approve_all(1)
        (asked,) = user.asked()
        busy_user.ask(*edits(1), [("list_files", {})], [("shell", {"command": "sleep 0.5; echo slept"})], "It slept.")
        busy_user.approve_all(2)
        site.deploy()
        receipt = busy_user.receipt()
        assert receipt["cause"]["source"] == "shutdown"
        assert [(each["name"], each["outcome"]) for each in receipt["calls"]] == [("shell", "completed")]
        user.answer(asked["id"], {"type": "approve"})
        assert user.receipt()["stop_reason"] == "end_turn"
        assert (user.folder / "file1.txt").read_text() == "new 1\n"
        assert outcomes(user.post(f"/runs/{user.run_id}/undo")["receipt"]) == [("edit_file", "undone")] * 2
        assert (user.folder / "file0.txt").read_text() == "old 0\n"
        assert (busy_user.folder / "file0.txt").read_text() == "new 0\n"


def test_two_users(site: CodingSite, user: User) -> None:
    """The same session name, the same call ids, the same paths: neither sees, stops, answers or undoes the other's."""
    with site.user("user11") as other:
        for each in (user, other):
            write_files(each.folder, 1)
            each.ask(*edits(1), [("read_file", {"path": "file0.txt"})])
        (asked,) = user.asked()
        (others,) = other.asked()
        assert asked["id"] == others["id"]
        answers = {"answers": [{"id": others["id"], "answer": True}]}
        for path, body in (("resume", answers), ("cancel", {"undo": True}), ("undo", {}), ("steer", {"text": "x"})):
            assert user.client.post(f"/runs/{other.run_id}/{path}", json=body).status_code == 404
        assert user.client.get(f"/runs/{other.run_id}").status_code == 404
        user.answer(asked["id"], {"type": "approve"})
        assert user.asked() == []
        assert (user.folder / "file0.txt").read_text() == "new 0\n"
        assert (other.folder / "file0.txt").read_text() == "old 0\n"
        other.answer(others["id"], {"type": "approve"})
        other.asked()
        assert outcomes(user.post(f"/runs/{user.run_id}/undo")["receipt"]) == [("edit_file", "undone")]
        assert (other.folder / "file0.txt").read_text() == "new 0\n"
        assert {each["id"] for each in user.client.get("/runs").json()["runs"]}.isdisjoint({other.run_id})
    assert user.client.get("/runs", headers={"cookie": "user=mallory"}).status_code == 401


def test_a_path_does_not_lead_into_the_folder_of_another_user(site: CodingSite, user: User) -> None:
    (site.folder("user10") / "secret.txt").write_text("hush")
    user.ask([("read_file", {"path": "../user10/secret.txt"})])
    results = [data["result"] for _, kind, data in user.events() if kind == "tool_ended"]
    assert results[0]["is_error"]
    assert "hush" not in str(results)


def test_a_task_of_sixty_turns(user: User) -> None:
    """Every fifth turn edits, with an approval; the others read. One task: one budget, and one undo."""
    write_files(user.folder, 60)
    reading = [[("read_file", {"path": f"file{n}.txt"})] for n in range(60)]
    editing = list(edits(60))
    user.ask(*(editing[n] if n % 5 == 0 else reading[n] for n in range(59)), "All done.")
    user.approve_all()
    receipt = user.receipt()
    assert receipt["stop_reason"] == "end_turn"
    assert receipt["task"]["used"]["turns"] == 60
    assert receipt["task"]["used"]["tool_calls"] == 59
    assert len(receipt["task"]["run_ids"]) == 13
    assert outcomes(user.post(f"/runs/{user.run_id}/undo")["receipt"]) == [("edit_file", "undone")] * 12
    assert {(user.folder / f"file{n}.txt").read_text() for n in range(60)} == {f"old {n}\n" for n in range(60)}


def test_results_of_two_megabytes(user: User) -> None:
    """The model gets each without its middle, and reads the middle by its handle; the streams stay small."""
    command = "seq 1 290000"
    user.ask(
        [("shell", {"command": command})],
        [("read_result", {"handle": "c1_0", "offset": 1_000_000, "length": 70})],
        [("shell", {"command": command})],
        "Much.",
    )
    user.approve_all(1)
    streams = [user.events()]
    user.approve_all()
    streams.append(user.events())
    results = [data["result"] for events in streams for _, kind, data in events if kind == "tool_ended"]
    texts = ["".join(part["text"] for part in result["content"]) for result in results]
    whole = "\n".join(map(str, range(1, 290_001)))
    assert [each["full_length"] for each in results] == [len(whole), None, len(whole)]
    assert texts[1].startswith(whole[1_000_000:1_000_070])
    assert max(map(len, texts)) <= 30_000
    assert sum(len(json.dumps(events)) for events in streams) < 1_000_000
    assert user.receipt()["stop_reason"] == "end_turn"


@pytest.mark.proof
def test_the_program_runs_without_a_key(tmp_path: Path) -> None:
    """`python examples/coding_agent/app.py`, through the demo, to SIGTERM."""
    port = free_port()
    environment = {**os.environ, "DATA": str(tmp_path / "data"), "PORT": str(port)}
    environment.pop("MODEL", None)
    with subprocess.Popen([sys.executable, "app.py"], cwd=EXAMPLE, env=environment, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        assert any(b"running on" in line for line in server.stderr)
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", cookies={"user": "ann"}, timeout=30) as client:
            assert "Coding agent" in client.get("/").text
            client.base_url = f"http://127.0.0.1:{port}/agent"
            run_id = start(client, "Mend it.", session="project")
            while read_events(client, run_id)[-1][2]["stop_reason"] == "interrupt":
                asked = client.get(f"/runs/{run_id}").json()["run"]["interrupts"]
                answers = {"answers": [{"id": each["id"], "answer": True} for each in asked]}
                run_id = client.post(f"/runs/{run_id}/resume", json=answers).json()["run"]["id"]
            assert client.get(f"/runs/{run_id}").json()["run"]["stop_reason"] == "end_turn"
        server.terminate()
        server.stderr.read()
    assert "Hello, {name}!" in (tmp_path / "data/ann/greeting.py").read_text()


def test_the_program_is_short() -> None:
    """The page aside, what a product needs beyond the library."""
    assert sum(len(path.read_text().splitlines()) for path in EXAMPLE.glob("*.py")) < 150
