"""Caps hold for all replicas and workers together: runs at once, and tokens and money of a day."""

from __future__ import annotations

import asyncio
import json
import uuid
from decimal import Decimal
from typing import Any

import pytest

from quiesce import Agent
from quiesce.cli import main
from quiesce.errors import CapReached, ConfigurationError
from quiesce.fleet import Cap, RunRequest, cap_table
from quiesce.fleet.cap_table import Share
from quiesce.fleet.records import FleetRun
from quiesce.fleet.taking import ServedAgent, take
from quiesce.models.scripted import Say, ScriptedModel, Stall
from quiesce.server import Settings, create_app

from ..server.support import endless, serving, start
from .conftest import FleetUnderTest

pytestmark = pytest.mark.promise("P6", "P8")


def talker(**options: Any) -> Agent:
    return Agent(ScriptedModel(then=[Say("word " * 400), Stall()]), **options)


@pytest.mark.feature
def test_starts_at_the_same_time_do_not_pass_the_cap_of_runs(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        await fleet.fleet.caps.set(Cap("*", runs=2))
        await fleet.fleet.caps.set(Cap(agent="agent", runs=5))
        await fleet.fleet.caps.set(Cap("bob", runs=4))

        async def starts(owner: str, count: int) -> list[Any]:
            each = (fleet.fleet.start("agent", "Hello", owner=owner) for _ in range(count))
            return [run for run in await asyncio.gather(*each, return_exceptions=True) if isinstance(run, FleetRun)]

        assert len(await starts("ann", 6)) == 2
        assert len(await starts("bob", 6)) == 3  # four by its own cap, and five of the agent in all
        with pytest.raises(CapReached, match="5 runs are active, and the cap of all keys together, agent 'agent' is 5"):
            await fleet.fleet.start("agent", "Hello", owner="eve")
        await fleet.fleet.stop_all(owner="ann")
        assert len(await starts("ann", 3)) == 2

    run_fleet(test)


def test_workers_together_do_not_pass_the_cap_of_a_day(run_fleet: Any) -> None:
    """Each run gets a share of what is left, is cut at it, and the next one gets the rest. Then starts are refused."""

    async def test(fleet: FleetUnderTest) -> None:
        await fleet.fleet.caps.set(Cap(tokens=500, run_tokens=200))
        runs = [await fleet.submit(session=f"ann/{n}") for n in range(4)]
        async with fleet.worker(talker(), lease=1.0), fleet.worker(talker(), lease=1.0):
            ended = [await fleet.rest(run.id) for run in runs]
        assert [run.reason for run in ended] == ["limit"] * 4
        shares = sorted((run.reserved_tokens or 0 for run in ended), reverse=True)
        assert shares[:2] == [200, 200]
        ((_, used),) = await fleet.fleet.caps.list()
        assert used is not None
        assert used.reserved_tokens == 0
        assert 490 <= used.tokens <= 600  # an answer is cut at the delta that passes its share
        begun = next(run for run in ended if run.reserved_tokens == 200)
        assert begun.receipt is not None
        assert begun.receipt.cause is not None
        assert begun.receipt.cause.source == "budget"
        assert "A cap of the fleet allows a run no more than this today" in begun.receipt.cause.reason
        with pytest.raises(CapReached, match="500 tokens a day") as refused:
            await fleet.submit(session="ann/more")
        assert 0 < refused.value.retry_after <= 86_400

    run_fleet(test)


def test_a_queued_run_waits_for_a_share_and_ends_when_nothing_is_left(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        await fleet.fleet.caps.set(Cap("ann", cost=Decimal(1), run_cost=Decimal("0.6")))
        first, second, third = [await fleet.submit(session=f"ann/{n}") for n in range(3)]
        database, worker = fleet.fleet._database, uuid.uuid4()

        async def taken(share: Share, lease: float = 60.0) -> list[tuple[str, Decimal | None]]:
            async with database.transaction() as db:
                found = await take(db, database.engine, {"agent": ServedAgent(share=share)}, 3, worker, lease=lease)
            return [(run.id, run.reserved_cost) for run in found]

        assert set(await taken(Share(cost=Decimal("0.7")))) == {(first.id, Decimal("0.7")), (second.id, Decimal("0.3"))}
        assert await taken(Share()) == []  # what is left is reserved: the third one stays in the queue
        found = await fleet.fleet.find(third.id)
        assert found is not None
        assert found.state == "queued"
        async with database.transaction() as db:
            await db.execute(f"INSERT INTO quiesce_fleet_usage VALUES ({cap_table._DAY}, 'ann', 'other', 1, 0, 1)")
            await db.execute("UPDATE quiesce_fleet_runs SET state = 'ended' WHERE id <> $1", third.id)
        await taken(Share(), lease=0.0)
        refused = await fleet.rest(third.id)
        assert (refused.reason, refused.attempt) == ("limit", 0)
        assert refused.receipt is not None
        assert "1 of money a day" in str(refused.receipt.cause)

    run_fleet(test)


def test_a_run_that_goes_on_has_its_share_above_what_its_task_has_used(run_fleet: Any) -> None:
    async def test(fleet: FleetUnderTest) -> None:
        await fleet.fleet.caps.set(Cap(tokens=10_000, run_tokens=400))
        async with fleet.worker(talker()):
            first = await fleet.rest((await fleet.submit()).id)
            following = RunRequest("ann", "agent", "ann/s", "continue")
            second = await fleet.rest((await fleet.fleet.submit(following))[0].id)
        for ended in (first, second):
            assert (ended.reason, ended.reserved_tokens) == ("limit", 400)
            assert ended.receipt is not None
            assert (ended.receipt.usage.output.value or 0) > 10

    run_fleet(test)


@pytest.mark.feature
def test_the_caps_over_http_and_in_the_terminal(
    fleet_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fleet_url
    monkeypatch.setenv("QUIESCE_STORE", url)
    assert main(["cap", "--each-key", "--runs", "1", "--tokens", "1000"]) == 0
    assert capsys.readouterr().out == "each key: 1 runs at once, 1,000 tokens a day\n"
    assert main(["cap", "--key", "someone", "--agent", "agent", "--cost", "2.50"]) == 0
    assert "the key 'someone', agent 'agent': 2.50 of money a day (0 used)" in capsys.readouterr().out
    assert main(["cap", "--json"]) == 0
    assert [json.loads(line)["owner"] for line in capsys.readouterr().out.splitlines()] == ["*", "someone"]
    app = create_app(endless(), settings=Settings(fleet=True, max_runs_per_key=1), store=url)
    with serving(app=app) as served, served.client() as client:
        start(client, "Later")
        refused = client.post("/runs", json={"prompt": "Hello"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_runs")
        assert refused.headers["retry-after"] == "1"
        (shown,) = client.get("/fleet").json()["caps"]
        assert (shown["allowed"], shown["used"]["runs"]) == ({"runs": 1, "tokens": 1000, "cost": None}, 1)
        assert main(["cap", "--each-key", "--remove"]) == 0
        assert main(["cap", "--each-key", "--remove"]) == 1
        refused = client.post("/runs", json={"prompt": "Hello"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_runs")  # by the settings


@pytest.mark.feature
@pytest.mark.parametrize(
    "cap",
    [
        *(Cap(runs=-1), Cap(run_tokens=0), Cap(tokens=2**63)),
        *(Cap(cost=Decimal(-1)), Cap(cost=Decimal("nan")), Cap(run_cost=Decimal("inf"))),
    ],
)
def test_a_cap_that_makes_no_sense_is_refused(cap: Cap) -> None:
    from quiesce.fleet.caps import Caps

    with pytest.raises(ConfigurationError):
        asyncio.run(Caps(None).set(cap))  # type: ignore[arg-type]
