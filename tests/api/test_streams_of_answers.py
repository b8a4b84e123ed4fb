"""`text_stream()` and `partial_output()`: the answer while it is written."""

from __future__ import annotations

import asyncio
import gc
import itertools
from typing import Any

import pytest
from pydantic import BaseModel, Field, RootModel, model_validator

from quiesce import Agent, RunError, tool
from quiesce.errors import ConfigurationError, OutputInvalid
from quiesce.run.output import OutputSpec
from quiesce.testing import Call, Fail, Harness, Say, ScriptedModel, Stall, run_virtual, stop_everywhere

pytestmark = pytest.mark.promise("P3")


class City(BaseModel):
    name: str
    people: int = Field(gt=0)
    rivers: list[str] = []


PARIS = '{"name": "Paris", "people": 2100000, "rivers": ["Seine", "Marne"]}'


@tool
async def look() -> str:
    """Look."""
    await asyncio.sleep(1)
    return "seen"


def talking(*, broken: bool = False) -> Agent:
    after = [Say("It is "), Fail(ValueError("broken"))] if broken else [Say("It is seen.", chunk=3, pause=0.1)]
    return Agent(ScriptedModel([Say("I look. "), Call("look")], then=after), tools=[look])


def describing(*answers: str, **options: Any) -> Agent[None, City]:
    said = [[Say(each, chunk=4, pause=0.1)] for each in answers]
    return Agent(ScriptedModel(*said, then=said[-1]), output_type=City, **options)


# --- Text -----------------------------------------------------------------------------------------------------------


def test_the_text_of_all_answers_from_the_first_word_however_late_one_comes() -> None:
    async def main() -> None:
        run = talking().start("go")
        await asyncio.sleep(1.15)
        pieces = [text async for text in run.text_stream()]
        assert "".join(pieces) == "I look. It is seen."
        assert len(pieces) > 2
        assert [text async for text in run.text_stream()] == ["I look. ", "It is seen."]

    run_virtual(main())


def test_the_text_stream_raises_the_error_of_the_run() -> None:
    async def main() -> None:
        pieces: list[str] = []
        run = talking(broken=True).start("go")
        for stream in (run.text_stream(), talking(broken=True).stream_async("go").text_stream()):
            with pytest.raises(RunError, match="broken"):
                async for text in stream:
                    pieces.append(text)
        assert "".join(pieces) == "I look. It is " * 2

    run_virtual(main())


def test_a_stop_ends_the_text_stream() -> None:
    async def main() -> None:
        run = Agent(ScriptedModel([Say("Well"), Stall()])).start("go")
        asyncio.get_running_loop().call_later(1, run.cancel)
        assert [text async for text in run.text_stream()] == ["Well"]
        assert (await run).stop_reason == "cancelled"

    run_virtual(main())


def test_leaving_the_text_of_a_run_leaves_it_running_and_leaving_that_of_a_stream_stops_it() -> None:
    async def main() -> None:
        run = talking().start("go")
        async for _ in run.text_stream():
            break
        gc.collect()
        assert (await run).stop_reason == "end_turn"

        stream = talking().stream_async("go")
        run = stream.run
        async for _ in stream.text_stream():
            break
        del stream
        gc.collect()
        assert (await run.stopped()).cause.source == "disconnect"

    run_virtual(main())


def test_the_task_that_reads_the_text_of_a_stream_owns_the_run() -> None:
    async def main() -> None:
        stream = talking().stream_async("go")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                async for _ in stream.text_stream():
                    pass
        assert stream.run.done
        assert (await stream.run.stopped()).cause.source == "caller"

    run_virtual(main())


# --- Partial output -------------------------------------------------------------------------------------------------


def test_the_output_grows_and_the_last_is_the_final_one() -> None:
    async def main() -> None:
        run = describing(PARIS).start("go")
        parts = [part async for part in run.partial_output()]
        output = (await run).output
        assert parts[-1] == output == City(name="Paris", people=2_100_000, rivers=["Seine", "Marne"])
        assert all(isinstance(part, City) for part in parts)
        assert all(one != two for one, two in itertools.pairwise(parts)), "only changes"
        seen = [part.model_fields_set for part in parts]
        assert {"name"} in seen
        assert {"name", "people"} in seen
        assert [part.name for part in parts if part.model_fields_set == {"name"}][-1] == "Paris"
        first = next(part for part in parts if part.model_fields_set == {"name"})
        with pytest.raises(AttributeError):
            first.people

    run_virtual(main())


def test_a_late_reader_of_the_output_gets_the_whole_at_once() -> None:
    async def main() -> None:
        run = describing(PARIS).start("go")
        await run
        assert [part async for part in run.partial_output()] == [(await run).output]

    run_virtual(main())


def test_an_answer_that_is_rejected_begins_again() -> None:
    async def main() -> None:
        run = describing('{"name": "Atlantis", "people": -1}', f"```json\n{PARIS}\n```").start("go")
        parts = [part async for part in run.partial_output()]
        names = list(dict.fromkeys(part.name for part in parts if "name" in part.model_fields_set))
        assert names.index("Atlantis") < names.index("Paris")
        assert all(part.people > 0 for part in parts if "people" in part.model_fields_set)
        assert parts[-1] == (await run).output

    run_virtual(main())


def test_what_validators_of_the_whole_make_of_it_comes_last() -> None:
    class Loud(BaseModel):
        name: str

        @model_validator(mode="after")
        def shout(self) -> Loud:
            self.name = self.name.upper()
            return self

    async def main() -> None:
        agent = Agent(ScriptedModel([Say('{"name": "Paris"}', chunk=4, pause=0.1)]), output_type=Loud)
        parts = [part async for part in agent.stream_async("go").partial_output()]
        assert parts[-1].name == "PARIS"
        assert parts[-2].name == "Paris"

    run_virtual(main())


@pytest.mark.parametrize("output_type", [list[City], RootModel[list[City]], dict[str, int], int])
def test_other_types_come_when_what_is_there_is_valid(output_type: Any) -> None:
    answer = (
        f"[{PARIS}, {PARIS}]" if "City" in str(output_type) else '{"a": 1, "b": 2}' if output_type is not int else "42"
    )

    async def main() -> None:
        agent = Agent(ScriptedModel([Say(answer, chunk=4, pause=0.1)]), output_type=output_type)
        run = agent.start("go")
        parts = [part async for part in run.partial_output()]
        assert parts[-1] == (await run).output
        if output_type == list[City]:
            assert list(dict.fromkeys(len(part) for part in parts)) == [0, 1, 2]

    run_virtual(main())


def test_a_long_output_is_not_parsed_again_for_each_word(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = '{"name": "%s"}' % ("Paris " * 4_000)
    parsed: list[int] = []
    parse_partial = OutputSpec.parse_partial
    monkeypatch.setattr(
        OutputSpec, "parse_partial", lambda spec, text: parsed.append(len(text)) or parse_partial(spec, text)
    )

    class Name(BaseModel):
        name: str

    async def main() -> None:
        agent = Agent(ScriptedModel([Say(whole, chunk=6, pause=0.001)]), output_type=Name)
        parts = [part async for part in agent.start("go").partial_output()]
        assert parts[-1].name == "Paris " * 4_000

    run_virtual(main())
    assert sum(parsed) < 120 * len(whole), "for each word it would be 2,000 times its length"


def test_the_last_words_before_a_stop_are_in_the_last_part() -> None:
    class Name(BaseModel):
        name: str

    async def main() -> None:
        agent = Agent(ScriptedModel([Say('{"name": "' + "x" * 5_000), Say("yz"), Stall()]), output_type=Name)
        run = agent.start("go")
        asyncio.get_running_loop().call_later(1, run.cancel)
        assert [part.name async for part in run.partial_output() if part.model_fields_set][-1].endswith("xyz")

    run_virtual(main())


def test_a_run_that_is_stopped_or_fails_ends_it() -> None:
    async def main() -> None:
        run = Agent(ScriptedModel([Say('{"name": "Par'), Stall()]), output_type=City).start("go")
        asyncio.get_running_loop().call_later(1, run.cancel)
        assert [part.name async for part in run.partial_output() if part.model_fields_set][-1] == "Par"
        run = describing("No.", output_retries=0).start("go")
        with pytest.raises(OutputInvalid):
            [part async for part in run.partial_output()]
        with pytest.raises(ConfigurationError, match="output_type"):
            talking().stream_async("go").partial_output()

    run_virtual(main())


# --- Stopped everywhere ---------------------------------------------------------------------------------------------


async def reading_text(harness: Harness) -> None:
    async with harness.start(talking(), "Go.") as run:
        await asyncio.sleep(0.5)
        pieces = "".join([text async for text in run.text_stream()])
        assert "I look. It is seen.".startswith(pieces)
        assert run.cause is not None or pieces == "I look. It is seen."


async def reading_output(harness: Harness) -> None:
    async with harness.start(describing(PARIS), "Go.") as run:
        await asyncio.sleep(0.35)
        parts = [part async for part in run.partial_output()]
        if run.cause is None:
            assert parts[-1] == (await run).output


@pytest.mark.parametrize("scenario", [reading_text, reading_output])
def test_a_stop_at_every_point(scenario: Any) -> None:
    assert stop_everywhere(scenario, follow_up=None).runs > 100
