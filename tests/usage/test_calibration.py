"""What completed calls teach about the calls that follow."""

import asyncio

import pytest

from quiesce import Agent, Conversation
from quiesce.events import TextDelta, UsageDelta
from quiesce.messages import Text, UserMessage
from quiesce.models.scripted import Say, ScriptedModel, Stall, Used
from quiesce.usage import Calibration, Provenance, register_vocabulary
from quiesce.usage.estimate.answer_count import Block
from quiesce.usage.estimate.content import Preamble
from quiesce.usage.estimate.estimator import UsageEstimator
from quiesce.usage.estimate.figures import SentRequest
from quiesce.usage.estimate.pieces import Pieces
from quiesce.usage.estimate.received import ReceivedAnswer
from tests.usage.kit import WORDS, cut_after

pytestmark = pytest.mark.promise("P6")


def test_calibration_learns_and_can_be_kept() -> None:
    async def main() -> None:
        said = WORDS * 30
        tokens = len(said) // 3  # a vocabulary that nobody knows
        steps = [Say(said), Used(100, tokens)]
        agent = Agent(ScriptedModel(steps, steps, steps, [Say(said, chunk=300), Stall()]))
        for _ in range(3):
            await agent.invoke_async("go on")
        kept = Calibration.load(agent.calibration.dump())
        fresh = Agent(ScriptedModel([Say(said, chunk=300), Stall()]), calibration=kept)
        naive = Agent(ScriptedModel([Say(said, chunk=300), Stall()]))
        truth = tokens  # the last piece came with the stop
        for each, source in ((agent, "calibrated"), (fresh, "calibrated"), (naive, "heuristic")):
            output = (await cut_after(each, 5)).usage.output
            assert output.source == source
            assert output.holds(truth)
            if source == "calibrated":
                assert abs(output.value - truth) < 0.02 * truth
                assert output.high - output.low < truth

    asyncio.run(main())


def test_calibration_does_not_grow_with_every_new_instruction() -> None:
    calibration = Calibration()
    for number in range(500):
        calibration.learn_spread("m", f"preamble {number}", number)
        calibration.learn_spread("m", "message", 4)
    assert len(calibration.dump()) < 10_000
    assert calibration.spread("m", "preamble 499") is not None
    assert calibration.spread("m", "message") is not None


def test_the_input_starts_from_the_last_report() -> None:
    async def main() -> None:
        model = ScriptedModel([Say("Yes."), Used(5000, 2)], [Say(WORDS * 9), Stall()], name="openai:gpt-4o")
        agent = Agent(model, instructions="x" * 40)
        await agent.invoke_async("first")
        result = await cut_after(agent, 2, "second prompt of a few words")
        figure = result.usage.input
        assert 5000 < figure.low <= figure.value <= figure.high < 5060

    asyncio.run(main())


def test_another_conversation_has_no_anchor() -> None:
    async def main() -> None:
        model = ScriptedModel([Say("Yes."), Used(5000, 2)], [Say(WORDS * 9), Stall()], name="openai:gpt-4o")
        agent = Agent(model)
        await agent.invoke_async("first")
        agent.clear()
        result = await cut_after(agent, 2, "second")
        assert result.usage.entries[0].usage.input.low < 5000

    asyncio.run(main())


@pytest.mark.case("litellm#37185")
def test_a_vocabulary_that_is_off_is_corrected() -> None:
    estimator, talk = UsageEstimator("custom:tuned", tokenizer="o200k_base"), Conversation()
    sent = SentRequest((UserMessage((Text("hi"),)),), Preamble(None))
    blocks = (Block("text", Pieces([WORDS * 40])),)
    for _ in range(3):
        estimator.record(talk, sent, ReceivedAnswer(UsageDelta(9, 880, final=True), blocks, complete=True))
    usage = estimator.usage(talk, sent, ReceivedAnswer(None, blocks))
    assert usage.output.source is Provenance.CALIBRATED
    assert abs(usage.output.value - 880) < 10


def test_a_slow_vocabulary_counts_while_the_answer_is_streamed() -> None:
    counted: list[int] = []

    def count(text: str) -> int:
        counted.append(len(text))
        return len(text.split())

    register_vocabulary("slow words", count, slow=True)

    async def main() -> None:
        model = ScriptedModel([Say(WORDS * 200, chunk=7), Stall()])
        model.tokenizer = "slow words"
        run = Agent(model).start("hi")
        left = len(WORDS * 200) // 7

        def cut(event) -> None:
            nonlocal left
            left -= isinstance(event, TextDelta)
            if left == 0:
                counted.clear()
                run.cancel()

        run.tap(cut)
        result = await run
        assert abs(result.usage.output.value - 2200) <= 2
        assert sum(counted) < 500  # what was left to count in the moment of the stop

    asyncio.run(main())
