"""A conversation of ten turns, cut at two hundred random places, for each way in which providers count and report."""

import asyncio
import random
import re
import statistics

import pytest

from quiesce import Agent, tool

from .providers import Habits, Provider, Score, Turn

pytestmark = pytest.mark.promise("P6")
pytest.importorskip("splintr")

CUTS = 200
TURNS = 10
USUAL_FRAMES = range(4, 17)  # tokens around a call; what is assumed before a model has shown its own is 10

PROVIDERS = {
    "OpenAI Chat": Habits("openai:gpt-4o", "o200k_base", chunk_tokens=(1, 2)),
    "OpenAI Chat, with long frames": Habits("openai:gpt-4o", "o200k_base", per_call=30, end_mark=6),
    "OpenAI Chat, without any": Habits("openai:gpt-4o", "o200k_base", per_call=0, end_mark=0, chunk_tokens=(1, 3)),
    "OpenAI reasoning": Habits("openai:o3-mini", "o200k_base", hidden_reasoning=(64, 900)),
    "OpenAI Responses": Habits("openai-responses:gpt-4.1", "o200k_base", per_message=3, hidden_prompt=5),
    "Anthropic, vocabulary unknown": Habits("anthropic:claude-x", "llama3", reports="start", known=False),
    "Bedrock, cut off": Habits("bedrock:nova", "mistral_v3", stop_policy="drain", known=False, chunk_tokens=(3, 9)),
    "Bedrock, drained": Habits("bedrock:nova", "mistral_v3", stop_policy="drain", drained=True, chunk_tokens=(3, 9)),
    "Gemini": Habits("gemini:gemini-2.0-flash", "gemma3", reports="chunks", chunk_tokens=(8, 40)),
    "vLLM, usage on each chunk": Habits("vllm:qwen2.5-7b", "qwen3", reports="chunks"),
    "OpenRouter, no look-up": Habits("openrouter:deepseek/deepseek-chat", "deepseek_v3", chunk_tokens=(1, 4)),
    "Ollama": Habits("ollama:llama3.2", "llama3"),
    "Mistral": Habits("mistral:mistral-large-latest", "mistral_v3", per_message=2),
    "Unknown server, usage at the end": Habits("custom:model", "glm4", known=False, per_message=6, hidden_prompt=20),
    "Unknown server that never reports": Habits("custom:silent", "cl100k_base", reports="never", known=False),
    "Wrong vocabulary": Habits("custom:finetune", "llama2", tokenizer="o200k_base", known=False),
}

SAID = """A run that is stopped leaves what is true behind it. The reader sees every word that was streamed, the tools
say what they did, and the bill is one that can be charged. Nobody should have to guess whether a stop has happened;
it's shown when it is true, not before. Das gilt auch für Übersetzungen, naturellement, и для других языков."""
PROSE = SAID.split()
CODE = re.split(
    " ",
    """def settle(course):
    hit = course.phase
    if course.current.draft is not None:
        course.current.draft.close()
    return {'phase': hit, "calls": [call.id for call in course.calls][:10]}

""",
)
EAST = "停止した実行は真実だけを残します。ツールは何をしたかを正確に伝え、請求書は正しいままです。 "


@tool
def search(query: str, limit: int = 3) -> str:
    """Search the documents."""
    chance = random.Random(query + str(limit))
    return write(chance, chance.randint(5, 120))


def write(chance: random.Random, words: int) -> str:
    style = chance.random()
    if style < 0.1:
        return EAST * (1 + words // 40)
    source = CODE if style < 0.3 else PROSE
    start = chance.randrange(len(source))
    return " ".join(source[(start + index) % len(source)] for index in range(words)).strip() or "yes"


def turns(chance: random.Random) -> list[Turn]:
    script: list[Turn] = []
    for _ in range(TURNS):
        if chance.random() < 0.35:
            calls = tuple(
                ("search", {"query": write(chance, chance.randint(1, 12)), "limit": chance.randint(1, 50)})
                for _ in range(chance.randint(1, 3))
            )
            script.append(Turn(text=write(chance, chance.randint(3, 20)), calls=calls))
        script.append(Turn(text=write(chance, chance.randint(20, 220))))
    return script


async def converse(habits: Habits, seed: int, score: Score) -> None:
    """Ten prompts; about half of the answers are cut, each at a place of its own."""
    chance = random.Random(seed)
    provider = Provider(habits, turns(chance), seed)
    agent = Agent(provider, tools=[search], instructions="You are terse. " * chance.randint(1, 30))
    for number in range(TURNS):
        run = agent.start(write(chance, chance.randint(2, 60)))
        if chance.random() < 0.6 and number:
            arm(provider, run, after=int(chance.expovariate(1 / 60)))
        result = await run
        if not habits.drained:
            agent.config.drain_pool.cut()  # what is left is what is known without draining
        await result.usage.final()
        compare(result.usage.snapshot().entries, provider.owed, habits, score)
        provider.on_token = lambda: None


def arm(provider: Provider, run, *, after: int) -> None:
    left = after

    def on_token() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            run.cancel("cut here")

    provider.on_token = on_token


def compare(entries, owed, habits: Habits, score: Score) -> None:
    """The last requests against the truth."""
    for place, entry in enumerate(entries, start=len(owed) - len(entries)):
        usage, truth = entry.usage, owed[place]
        if entry.ended == "completed" and habits.reports != "never":
            assert (usage.input.value, usage.output.value) == (truth.input, truth.output)
            continue
        score.cuts += 1
        score.zeros += usage.input.value == 0 or usage.output.value == 0
        score.input_held += usage.input.holds(truth.input)
        score.output_held += usage.output.holds(truth.output)
        if usage.input.value is not None:
            score.input_errors.append(abs(usage.input.value - truth.input) / truth.input)
        if usage.output.value is not None and truth.output:
            score.output_errors.append(abs(usage.output.value - truth.output) / truth.output)
            score.output_close += abs(usage.output.value - truth.output) <= max(1, 0.01 * truth.output)
            # What surrounds a call is not streamed, so nobody can know it before one answer with a call has ended.
            taught = not truth.calls or any(each.calls and each.finished for each in owed[:place])
            score.untaught += not taught
            if taught and abs(usage.output.value - truth.output) > max(1, 0.01 * truth.output):
                score.output_off.append((usage.output.value, truth.output))
            score.output_guessed += usage.output.value
            score.output_owed += truth.output
        if usage.output.high is None:
            score.open_above += 1
        else:
            score.widths.append((usage.output.high - usage.output.low) / max(1, truth.output))


def run_until(habits: Habits, cuts: int) -> Score:
    async def main() -> Score:
        score, seed = Score(), 0
        while score.cuts < cuts:
            await converse(habits, seed, score)
            seed += 1
        return score

    return asyncio.run(main())


def line(name: str, score: Score) -> str:
    """One provider's figures. "close" is within 1 % or one token; "off" are those that are not, without the ones that
    were cut in the model's first answer with a call.
    """
    known = len(score.output_errors)
    return (
        f"{name:<34} {score.cuts:>3} cuts | input held {score.input_held / score.cuts:6.1%}, mean error "
        f"{statistics.mean(score.input_errors):6.2%} | output held {score.output_held / score.cuts:6.1%}, mean error "
        f"{statistics.mean(score.output_errors):6.2%}, sum {score.output_guessed / score.output_owed - 1:+7.2%}, close "
        f"{score.output_close / known:6.1%}, off {len(score.output_off):>3} ({score.untaught} untaught)"
        f" | open above {score.open_above:>3} | zeros {score.zeros}"
    )


@pytest.mark.parametrize("name", PROVIDERS)
def test_cut_in_some_places(name: str) -> None:
    check(name, run_until(PROVIDERS[name], CUTS // 5))


@pytest.mark.proof
@pytest.mark.parametrize("name", PROVIDERS)
def test_cut_in_two_hundred_places(name: str) -> None:
    check(name, run_until(PROVIDERS[name], CUTS))


def check(name: str, score: Score) -> None:
    habits = PROVIDERS[name]
    print(line(name, score))
    assert score.zeros == 0
    assert score.input_held == score.cuts
    if habits.drained:
        assert score.output_guessed == score.output_owed
    if habits.known and habits.hidden_reasoning == (0, 0):
        assert not score.output_off  # each single cut: within 1 %, or one token where that is more
        assert score.output_close >= 0.95 * len(score.output_errors)
        assert score.untaught <= 0.05 * score.cuts or score.cuts < CUTS
        if habits.per_call in USUAL_FRAMES:  # then all cuts together, those that nobody could know included
            assert statistics.mean(score.output_errors) <= 0.01
            assert abs(score.output_guessed / score.output_owed - 1) <= 0.01
    assert score.output_held >= 0.95 * score.cuts


if __name__ == "__main__":
    for each, kind in PROVIDERS.items():
        print(line(each, run_until(kind, CUTS)), flush=True)
