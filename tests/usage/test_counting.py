"""Counting piece by piece is counting the whole."""

import os
import random
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quiesce import Agent
from quiesce.testing import Say, ScriptedModel, Used
from quiesce.usage.estimate import counting
from quiesce.usage.estimate.counting import ByteCounter, VocabularyCounter
from quiesce.usage.estimate.vocabulary import SLOW, Vocabulary, register_vocabulary, vocabulary_of

pytestmark = pytest.mark.promise("P6")

splintr = pytest.importorskip("splintr")

NAMES = (
    *("o200k_base", "cl100k_base", "gpt-oss", "llama3", "llama2", "qwen3", "deepseek_v3", "kimi_k2", "kimi_k3", "glm4"),
    *("mistral_v1", "mistral_v2", "mistral_v3", "gemma2", "gemma3", "gemma4", "phi4", "olmo2"),
)

MIXED = """the a of I stop streaming token HTTPServer camelCase don't it's we'll naïve café 12345 3.14 x_y e.g. end.
(see) 日本語テスト 机械 مرحبا привет 😀 👩\u200d👩\u200d👧 e\u0301 <|endoftext|> <s> ``` def return {} [] == != ->
:: // # ''"""
WORDS = st.sampled_from(MIXED.split())
GAPS = st.sampled_from([" ", " ", " ", " ", "  ", "\n", "\n\n", "\t", "\n    ", ", ", ". ", "", "-", "\r\n"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
).map(repr)
PROSE = st.lists(st.tuples(WORDS, GAPS), max_size=60).map(lambda pairs: "".join(word + gap for word, gap in pairs))
TEXT = st.one_of(PROSE, JSON, st.text(max_size=120), st.lists(st.one_of(PROSE, JSON), max_size=3).map(" ".join))


def pieces(text: str, seed: int) -> list[str]:
    chance = random.Random(seed)
    cut, parts = 0, []
    while cut < len(text):
        size = chance.choice((1, 2, 3, 5, 8, 13, 80))
        parts.append(text[cut : cut + size])
        cut += size
    return parts


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=TEXT, seed=st.integers(0, 1000))
def test_pieces_add_up_to_the_whole(name: str, text: str, seed: int) -> None:
    vocabulary = vocabulary_of("any", name)
    assert vocabulary is not None
    counter = VocabularyCounter(vocabulary)
    for part in pieces(text, seed):
        counter.add(part)
        if seed % 3 == 0:
            assert counter.roughly >= 0
            _ = counter.tokens  # looking in between changes nothing
    assert counter.tokens == vocabulary.count(text)


@pytest.mark.parametrize("version", ["claude-3.0", "claude-4.7", "claude-4.8"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=PROSE, seed=st.integers(0, 1000))
def test_claude_too(version: str, text: str, seed: int) -> None:
    pytest.importorskip("ctok", reason="needs Python 3.12")
    vocabulary = vocabulary_of("any", version)
    assert vocabulary is not None
    counter = VocabularyCounter(vocabulary)
    for part in pieces(text, seed):
        counter.add(part)
    assert counter.tokens == vocabulary.count(text)


def test_a_long_text_without_seams_is_not_counted_over_and_over() -> None:
    counted = 0

    def count(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return len(text)

    counter = VocabularyCounter(Vocabulary("letters", count))
    for _ in range(20_000):
        counter.add("机械")
        _ = counter.roughly
    assert counter.tokens == 40_000
    assert counted < 20 * 40_000


def test_a_long_text_without_seams_is_not_searched_over_and_over(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = 0
    seam = counting._SEAM

    class WatchedRun:
        def finditer(self, text: str, start: int):
            nonlocal searched
            searched += len(text) - start
            return seam.finditer(text, start)

    monkeypatch.setattr(counting, "_SEAM", WatchedRun())
    counter = VocabularyCounter(Vocabulary("letters", len))
    for number in range(20_000):
        counter.add(f" word{number % 10}")  # a digit before each space, so there is no seam
    assert counter.tokens == 6 * 20_000
    assert searched < 3 * 6 * 20_000


async def test_a_long_answer_that_was_reported_is_not_counted_at_its_end() -> None:
    counted = 0

    def count(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return len(text)

    register_vocabulary("letters that tell", count)
    model = ScriptedModel([Say("long " * 40_000, chunk=5000), Used(input=9, output=200_000)], name="mine")
    model.tokenizer = "letters that tell"
    counted = 0
    result = await Agent(model).invoke_async("Go.")
    assert result.usage.output.value == 200_000
    assert counted < 1000


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("openai:gpt-4o-mini", "o200k_base"),
        ("gpt-5.1", "o200k_base"),
        ("openai:o3-mini", "o200k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("openai/gpt-oss-120b", "gpt-oss"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3"),
        ("deepseek-r1-distill-llama-70b", "llama3"),
        ("deepseek-r1-distill-qwen-32b", "qwen3"),
        ("ollama:qwen2.5:7b", "qwen3"),
        ("deepseek:deepseek-chat", "deepseek_v3"),
        ("moonshotai/kimi-k2-instruct", "kimi_k2"),
        ("glm-4.5-air", "glm4"),
        ("mistral-large-latest", "mistral_v3"),
        ("gemini-2.5-flash", "gemma3"),
        ("gemma-3-27b-it", "gemma3"),
    ],
)
def test_a_name_tells_the_vocabulary(model: str, name: str) -> None:
    vocabulary = vocabulary_of(model)
    assert vocabulary is not None
    assert vocabulary.name == name


@pytest.mark.parametrize(
    "model", ["scripted", "meta-llama/Llama-4-Scout", "qwen3.5-plus", "foo3", "claude-2.1", "o", ""]
)
def test_a_name_that_only_looks_alike_tells_nothing(model: str) -> None:
    assert vocabulary_of(model) is None


def test_unknown_families_fall_back_to_bytes() -> None:
    assert vocabulary_of("scripted", "no-such-family") is None
    counter = ByteCounter()
    counter.add("héllo")
    assert counter.tokens == 2


def test_a_model_can_bring_its_own() -> None:
    register_vocabulary("words", lambda text: len(text.split()))
    vocabulary = vocabulary_of("mine", "words")
    assert vocabulary is not None
    assert vocabulary.count("one two three") == 3


def test_half_a_surrogate_pair_is_counted() -> None:
    vocabulary = vocabulary_of("gpt-4o")
    assert vocabulary is not None
    counter = VocabularyCounter(vocabulary)
    for part in ("a \ud83d", "\ude00 b c", " \ud83d"):
        counter.add(part)
    assert counter.tokens == vocabulary.count("a \ud83d\ude00 b c \ud83d")


@pytest.mark.promise("P1")
def test_what_is_slow_is_known_before_it_is_loaded() -> None:
    slow = {name for name in NAMES if splintr.Tokenizer.from_pretrained(name).family != "BPE"}
    assert slow == SLOW


@pytest.mark.promise("P1")
def test_an_agent_is_made_without_loading_what_only_counting_needs() -> None:
    program = """
import sys
from quiesce import Agent
agent = Agent("openai:gpt-4o")
print({name for name in ("splintr", "genai_prices", "pydantic") if name in sys.modules})
"""
    printed = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OPENAI_API_KEY": "k"},
    ).stdout
    assert printed == "set()\n"
