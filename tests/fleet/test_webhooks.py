"""Webhooks against a real HTTP receiver: signed, and sent again after a failure or the loss of a worker."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from quiesce import Agent, tool
from quiesce.cancellation import Cause
from quiesce.cli import main
from quiesce.errors import ConfigurationError
from quiesce.fleet import Fleet, FleetRun, run_table, webhook_table, webhooks
from quiesce.fleet.taking import ServedAgent, take
from quiesce.fleet.webhook_table import Delivery
from quiesce.fleet.webhooks import WebhookSender, signature
from quiesce.models.scripted import Call, ScriptedModel

from .conftest import FleetUnderTest

pytestmark = pytest.mark.promise("P4", "P9")


class Receiver:
    """An HTTP server that records what it gets, and answers with the next of `answers`, or 200."""

    def __init__(self, port: int = 0) -> None:
        self.received: list[dict[str, Any]] = []
        self.answers: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Semaphore(0)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.received.append({"path": self.path, "headers": headers, "body": body})
                status = receiver.answers.pop(0) if receiver.answers else 200
                receiver.arrived.release()
                receiver.gate.wait(30)
                try:
                    self.send_response(status)
                    self.send_header("content-length", "0")
                    self.end_headers()
                except OSError:  # the sender has hung up
                    pass

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = False
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self._thread.start()

    async def arrival(self) -> dict[str, Any]:
        assert await asyncio.to_thread(self.arrived.acquire, timeout=30)
        return self.received[-1]

    def close(self) -> None:
        self.gate.set()
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@contextmanager
def free_port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    port = server.server_port
    server.server_close()
    yield port


@asynccontextmanager
async def sending(fleet: Fleet) -> AsyncIterator[WebhookSender]:
    sender = WebhookSender(fleet._database)
    task = asyncio.create_task(sender.run())
    try:
        yield sender
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def ended_run(fleet: FleetUnderTest, state: Any = "ended", session: str = "ann/s") -> FleetRun:
    """A run whose worker has recorded the end, and was killed right after that."""
    run = await fleet.submit(session=session)
    database = fleet.fleet._database
    async with database.transaction() as db:
        (taken,) = await take(db, database.engine, {"agent": ServedAgent()}, 1, uuid.uuid4(), lease=60.0)
        receipt = run_table.unbegun_receipt(run.id, Cause("user", "enough"))
        assert await run_table.end(db, database.engine, taken, receipt, state=state)
    return taken


async def until(fleet: FleetUnderTest, **expected: Any) -> None:
    """Return when the counts of the only webhook are these."""
    async with asyncio.timeout(30):
        while True:
            ((_, counts),) = await fleet.fleet.webhooks.list()
            if all(getattr(counts, name) == value for name, value in expected.items()):
                return
            await asyncio.sleep(0.01)


@pytest.mark.feature
def test_the_signature_is_that_of_standard_webhooks() -> None:
    """The example of the libraries of the specification."""
    secret, message = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek"
    signed = signature(secret, message, 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_worker_tells_when_a_run_waits_for_a_person_and_when_it_ends(run_fleet: Any, receiver: Receiver) -> None:
    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    agent = Agent(ScriptedModel([Call("pay", {"amount": 3}, id="call_1")], "Paid."), tools=[pay])

    async def test(fleet: FleetUnderTest) -> None:
        hook = await fleet.fleet.webhooks.add(receiver.url, private=True)
        async with fleet.worker(agent):
            waiting = await fleet.submit("Pay")
            first = await receiver.arrival()
            ended = await fleet.submit("Again", session="ann/two")
            second = await receiver.arrival()
        for got, run, kind, reason in (
            (first, waiting, "run.waiting", "interrupt"),
            (second, ended, "run.ended", "end_turn"),
        ):
            body = json.loads(got["body"])
            assert (body["type"], body["data"]["id"], body["data"]["stop_reason"]) == (kind, run.id, reason)
            assert b"Pay" not in got["body"]
            headers = got["headers"]
            signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + got["body"]
            key = base64.b64decode(hook.secret.removeprefix("whsec_"))
            expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
            assert headers["webhook-signature"] == f"v1,{expected}"
        assert first["headers"]["webhook-id"] != second["headers"]["webhook-id"]

    run_fleet(test)


def test_what_a_killed_worker_has_not_sent_is_sent_by_another(
    run_fleet: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        await fleet.fleet.webhooks.add(receiver.url, private=True)
        lost = await ended_run(fleet, "crashed")
        async with fleet.fleet._database.connection() as db:
            monkeypatch.setattr(webhook_table, "CLAIM", 0.0)
            (claimed,) = await webhook_table.claim(db, 10)  # another process had it, and was killed while it sent it
            monkeypatch.undo()
        async with sending(fleet.fleet):
            got = await receiver.arrival()
            await until(fleet, delivered=1, waiting=0)
        body = json.loads(got["body"])
        assert (body["type"], body["data"]["id"], body["data"]["state"]) == ("run.lost", lost.id, "crashed")
        assert (got["headers"]["webhook-id"], claimed.attempts) == (claimed.id, 1)
        queued = await fleet.submit(session="ann/queued")
        await fleet.fleet.stop(queued.id, "not needed")
        async with sending(fleet.fleet):
            assert json.loads((await receiver.arrival())["body"])["data"]["cause"]["reason"] == "not needed"

    run_fleet(test)


def test_a_receiver_that_fails_or_is_down_gets_it_later_with_the_same_id(
    run_fleet: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "RETRIES", (0.01,) * 100)

    async def test(fleet: FleetUnderTest) -> None:
        hook = await fleet.fleet.webhooks.add(receiver.url, private=True)
        receiver.answers = [500, 302]
        await ended_run(fleet)
        async with sending(fleet.fleet):
            for _ in range(3):
                await receiver.arrival()
            await until(fleet, delivered=1, waiting=0)
            assert len({got["headers"]["webhook-id"] for got in receiver.received}) == 1
            await fleet.fleet.webhooks.remove(hook.id)

            with free_port() as port:
                await fleet.fleet.webhooks.add(f"http://127.0.0.1:{port}/hook", private=True)
            down = await ended_run(fleet, session="ann/two")
            while not (await fleet.fleet.webhooks.list())[0][1].last_failure:
                await asyncio.sleep(0.01)
            later = Receiver(port)
            try:
                assert json.loads((await later.arrival())["body"])["data"]["id"] == down.id
                await until(fleet, delivered=1, waiting=0)
            finally:
                later.close()

    run_fleet(test)


def test_a_slow_receiver_holds_up_no_other_and_one_that_is_gone_gets_no_more(
    run_fleet: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "RETRIES", ())  # given up after the first try

    async def rest(fleet: FleetUnderTest) -> list[Any]:
        async with asyncio.timeout(30):
            while sum(counts.waiting for _, counts in await fleet.fleet.webhooks.list()):
                await asyncio.sleep(0.01)
        return await fleet.fleet.webhooks.list()

    async def test(fleet: FleetUnderTest) -> None:
        slow, fast = Receiver(), receiver
        slow.gate.clear()
        try:
            await fleet.fleet.webhooks.add(slow.url, private=True)
            await fleet.fleet.webhooks.add(fast.url, private=True, events=["run.ended"], agent="agent", owner="ann")
            await fleet.fleet.webhooks.add(fast.url, private=True, owner="another")
            await fleet.fleet.webhooks.add(fast.url)  # not named as private
            run = await ended_run(fleet)
            async with sending(fleet.fleet):
                await slow.arrival()
                assert json.loads((await fast.arrival())["body"])["data"]["id"] == run.id
                slow.gate.set()
                shown = [counts for _, counts in await rest(fleet)]
                assert [(each.delivered, each.failed) for each in shown] == [(1, 0), (1, 0), (0, 0), (0, 1)]
                assert "no public address" in shown[3].last_failure
                assert len(fast.received) == 1

                slow.gate.clear()
                fast.answers = [410]
                monkeypatch.setattr(webhooks, "TIMEOUT", 1.0)
                await ended_run(fleet, session="ann/two")
                found = await rest(fleet)
                assert "Timeout" in found[0][1].last_failure
                assert found[1][0].disabled is not None
        finally:
            slow.close()

    run_fleet(test)


@pytest.mark.feature
def test_webhooks_in_the_terminal(
    fleet_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUIESCE_STORE", fleet_url)
    assert main(["webhook", "list"]) == 0
    assert main(["webhook", "add", "https://example.com/hook", "--event", "run.lost", "--agent", "teller"]) == 0
    said = capsys.readouterr().out
    assert "secret: whsec_" in said
    assert main(["webhook", "list"]) == 0
    listed = capsys.readouterr().out
    assert "https://example.com/hook  run.lost  agent teller  0 delivered, 0 waiting, 0 given up" in listed
    assert "whsec_" not in listed
    assert main(["webhook", "list", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["url"], shown["waiting"], "secret" in shown) == ("https://example.com/hook", 0, False)
    assert main(["webhook", "remove", listed.split()[0]]) == 0
    assert main(["webhook", "remove", listed.split()[0]]) == 1
    for wrong in (["file:///etc/passwd"], ["https://example.com", "--event", "run.begun"]):
        assert main(["webhook", "add", *wrong]) == 1


@pytest.mark.feature
def test_an_address_or_an_event_that_cannot_be_meant_is_refused() -> None:
    hooks: Any = webhooks.Webhooks(None)  # type: ignore[arg-type]
    for wrong in (
        "ftp://example.com",
        "https://",
        "https://example.com:99999/",
        "https://example.com/\x01",
        "http://[x",
    ):
        with pytest.raises(ConfigurationError):
            asyncio.run(hooks.add(wrong))
    with pytest.raises(ConfigurationError, match=r"run\.begun"):
        asyncio.run(hooks.add("https://example.com", events=["run.begun"]))


@pytest.mark.feature
@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/", "https://example.com/\x01"])
async def test_an_address_that_cannot_be_sent_to_is_a_failure_like_others(url: str) -> None:
    """It was no failure to the sender, who tried it again each minute, for ever."""
    sender: Any = WebhookSender(None)  # type: ignore[arg-type]
    assert await sender._post(Delivery("msg_1", "wh_1", url, "whsec_AAAA", private=True, body=b"{}", attempts=1))
    for client in sender._clients.values():
        await client.aclose()
