"""What the tests of figures share."""

from hypothesis import strategies as st

from quiesce import Agent
from quiesce.events import TextDelta
from quiesce.usage import Figure, Provenance

WORDS = "the run that is stopped leaves what is true behind it "


async def cut_after(agent: Agent, words: int, prompt="hi"):
    run = agent.start(prompt)

    def count(event) -> None:
        nonlocal words
        words -= isinstance(event, TextDelta)
        if words == 0:
            run.cancel()

    run.tap(count)
    return await run


figures = st.tuples(st.integers(0, 5000), st.integers(0, 5000), st.integers(0, 5000)).map(
    lambda three: Figure(sorted(three)[1], min(three), max(three), Provenance.TOKENIZED)
)
