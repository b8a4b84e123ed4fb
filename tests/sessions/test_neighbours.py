"""Real processes that want the same session: in order, by steering and by stopping, and when one of them is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quiesce import Session
from quiesce.conversation.validity import faults
from quiesce.messages import UserMessage
from quiesce.sessions.stores.resolve import resolve_store

pytestmark = pytest.mark.promise("P8", "P9")


class Neighbour:
    """A process with one run."""

    def __init__(self, store: str, prompt: str, on_busy: str, script: str) -> None:
        job = {"store": store, "prompt": prompt, "on_busy": on_busy, "script": script}
        command = [sys.executable, "-m", "tests.sessions.neighbour", json.dumps(job)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def until(self, what: str) -> dict[str, Any]:
        """Wait until it is so far."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if said["what"] == what:
                return said
            assert said["what"] != "ended", said
        raise AssertionError(f"it ended before it was {what}")

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("stop\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Street:
    """Processes that share a store."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._all: list[Neighbour] = []

    def start(self, prompt: str, *, on_busy: str = "refuse", script: str = "answer") -> Neighbour:
        self._all.append(Neighbour(self._store, prompt, on_busy, script))
        return self._all[-1]

    def speaking(self, prompt: str) -> Neighbour:
        """One that has the session, and goes on until it is stopped."""
        return self._so_far(self.start(prompt, script="stall"), "speaking")

    def holding(self, prompt: str) -> Neighbour:
        """One that has the session, in a tool that cannot be stopped."""
        return self._so_far(self.start(prompt, script="hold"), "holding")

    def queued(self, prompt: str, on_busy: str) -> Neighbour:
        """One that waits for the session."""
        return self._so_far(self.start(prompt, on_busy=on_busy), "in line")

    def _so_far(self, neighbour: Neighbour, what: str) -> Neighbour:
        neighbour.until(what)
        return neighbour

    def said(self) -> list[str]:
        store = resolve_store(self._store)
        messages = Session("s", store).load_sync()
        store.close().result()
        assert faults(messages) == ()
        return [message.text for message in messages if isinstance(message, UserMessage)]

    def close(self) -> None:
        for each in self._all:
            each.close()


in_both = pytest.mark.parametrize("street", ["sqlite", "postgres"], indirect=True)
# What a process does then is the same with both: `make test` has it with one.
mostly_in_postgres = pytest.mark.parametrize(
    "street", [pytest.param("sqlite", marks=pytest.mark.proof), "postgres"], indirect=True
)


@pytest.fixture
def street(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Street]:
    if request.param == "sqlite":
        store = f"sqlite:///{tmp_path / 'sessions.db'}"
    else:
        store = request.getfixturevalue("postgres").new_database()
    made = Street(store)
    yield made
    made.close()


@in_both
def test_the_holder_is_killed_and_the_line_moves_on_in_order(street: Street) -> None:
    first = street.speaking("One")
    second = street.queued("Two", "queue")
    third = street.queued("Three", "queue")
    first.kill()
    assert second.until("ended")["reason"] == "end_turn"
    assert third.until("ended")["reason"] == "end_turn"
    assert street.said() == ["One", "Two", "Three"]


@mostly_in_postgres
def test_one_who_waits_is_killed_and_is_not_waited_for(street: Street) -> None:
    first = street.speaking("One")
    second = street.queued("Two", "queue")
    third = street.queued("Three", "queue")
    second.kill()
    first.stop()
    assert first.until("ended")["reason"] == "cancelled"
    assert third.until("ended")["reason"] == "end_turn"
    assert street.said() == ["One", "Three"]


@mostly_in_postgres
def test_cancel_previous_reaches_the_other_process(street: Street) -> None:
    first = street.speaking("One")
    second = street.queued("Two", "queue")
    third = street.start("Three", on_busy="cancel_previous")
    stopped = [each.until("ended") for each in (first, second)]
    assert [(each["reason"], each["source"]) for each in stopped] == [("cancelled", "remote")] * 2
    assert stopped[1]["unsent"] == ["Two"]
    assert third.until("ended")["reason"] == "end_turn"
    assert street.said() == ["One", "Three"]


@in_both
def test_steer_reaches_the_other_process(street: Street) -> None:
    first = street.speaking("How?")
    second = street.start("By bus", on_busy="steer")
    told = second.until("ended")
    assert told["reason"] == "steered"
    assert "By bus" in street.said()
    answered = first.until("ended")
    assert (answered["reason"], answered["text"], answered["run"]) == ("end_turn", "Yes.", told["steered"])
    assert street.said() == ["How?", "By bus"]


@mostly_in_postgres
def test_the_holder_is_killed_before_it_has_said_what_it_was_steered_with(street: Street) -> None:
    first = street.holding("One")
    second = street.queued("Two", "steer")
    first.kill()
    told = second.until("ended")
    assert (told["reason"], told["text"]) == ("end_turn", "Yes.")
    assert street.said() == ["One", "Two"]


@mostly_in_postgres
def test_one_who_steers_is_killed_and_the_holder_goes_on(street: Street) -> None:
    first = street.holding("One")
    second = street.queued("Two", "steer")
    second.kill()
    third = street.queued("Three", "cancel_previous")
    first.stop()
    first.kill()  # its tool has a minute to finish
    assert third.until("ended")["reason"] == "end_turn"
    assert street.said() in (["One", "Three"], ["One", "Two", "Three"])
