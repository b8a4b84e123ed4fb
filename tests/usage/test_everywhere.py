"""The bill at every point where a run can be stopped: every entry settled, every interval true."""

import pytest

from quiesce import Agent, Limits, tool
from quiesce.events import UsageDelta
from quiesce.testing import Call, Pause, Say, ScriptedModel, Used, stop_everywhere
from quiesce.usage import RequestStopPolicy

pytestmark = pytest.mark.promise("P6")

# What each request of the script costs when it is billed in full.
OWED = ((40, 19), (90, 12), (100, 3))
METERED = Limits(tokens=10_000)


@tool
async def quick(word: str = "x") -> str:
    """Answer at once."""
    return word


class Billed(ScriptedModel):
    """A script whose provider bills every answer in full, and can be asked about it."""

    def __init__(self) -> None:
        super().__init__(
            [Say("Some words. "), Pause(0.5), Call("quick"), Used(*OWED[0])],
            [Say("More words here. "), Pause(1.0), Say("and more."), Used(*OWED[1])],
            then=[Say("Again."), Used(*OWED[2])],
        )

    async def lookup_usage(self, request_id: str) -> UsageDelta:
        return UsageDelta(*OWED[min(int(request_id.rpartition("-")[2]), 3) - 1])

    async def cancel_request(self, request_id: str) -> None:
        return None


@pytest.mark.leaves("tasks")  # which the end of the loop cuts
@pytest.mark.parametrize(
    ("action", "limits"),
    [
        pytest.param("drain", Limits(), id="drain"),
        pytest.param("lookup", Limits(), id="lookup"),
        pytest.param("cancel_at_provider", Limits(), id="cancel_at_provider"),
        pytest.param("hang_up", Limits(), id="hang_up"),
        pytest.param("drain", METERED, id="drain-metered"),
        # The meter is asked in the same places whatever the policy is.
        pytest.param("lookup", METERED, id="lookup-metered", marks=pytest.mark.proof),
        pytest.param("cancel_at_provider", METERED, id="cancel_at_provider-metered", marks=pytest.mark.proof),
        pytest.param("hang_up", METERED, id="hang_up-metered", marks=pytest.mark.proof),
    ],
)
def test_the_bill_is_true_wherever_the_stop_comes(action, limits) -> None:
    agents: list[Agent] = []

    def make() -> Agent:
        agents.append(Agent(Billed(), tools=[quick], stop_policy=RequestStopPolicy(action), limits=limits))
        return agents[-1]

    report = stop_everywhere(make, name=action)
    print(report)
    assert report.runs > 100
    endings: set[str] = set()
    for agent in agents:
        assert len(agent.config.drain_pool) == 0
        for number, entry in enumerate(agent.usage.wait(timeout=0).entries):
            endings.add(entry.ended)
            assert entry.ended not in ("open", "draining")
            assert not entry.provisional
            sent, out = OWED[min(number, 2)]
            if action == "drain" or entry.ended == "completed":
                assert entry.usage.output.holds(out), entry
            if entry.ended == "drained" or (entry.supersedes and action != "drain"):
                assert (entry.usage.input.value, entry.usage.output.value) == (sent, out)
            assert entry.usage.input.value != 0
            assert entry.usage.output.value != 0
    assert {"completed", "hung_up"} <= endings
    assert {"drain": "drained", "cancel_at_provider": "cancelled_at_provider"}.get(action, "hung_up") in endings
