"""Models that bill and report as the providers do, with true token counts, and can say afterwards what was owed."""

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache

import msgspec
import splintr

from quiesce.events import (
    AnswerEnd,
    AnswerStart,
    Delta,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    UsageDelta,
)
from quiesce.messages import AssistantMessage, CutNote, Message, Reasoning, Text, ToolCall, ToolMessage, UserMessage
from quiesce.models.base import ModelRequest
from quiesce.usage.estimate.vocabulary import Vocabulary, vocabulary_of
from quiesce.usage.prices import Price


@dataclass(frozen=True)
class Habits:
    """How a provider counts, reports and bills."""

    name: str
    vocabulary: str  # what it really counts in
    tokenizer: str | None = None  # what it says it counts in; None leaves that to the model's name
    reports: str = "end"  # end | start | chunks | never
    stop_policy: str = "hang_up"
    per_message: int = 4
    hidden_prompt: int = 3
    per_call: int = 7
    end_mark: int = 1
    hidden_reasoning: tuple[int, int] = (0, 0)
    known: bool = True  # whether its vocabulary is known here
    drained: bool = False  # whether its streams are read to the end after a stop
    chunk_tokens: tuple[int, int] = (1, 1)


@dataclass
class Owed:
    """What one request really cost."""

    input: int
    output: int = 0
    reasoning: int = 0
    calls: int = 0
    finished: bool = False


@dataclass
class Turn:
    """One answer of the script."""

    reasoning: str = ""
    text: str = ""
    calls: tuple[tuple[str, dict], ...] = ()


class Provider:
    """Plays turns token by token. `owed` has what each request cost, in the order in which they were sent."""

    def __init__(self, habits: Habits, turns: list[Turn], seed: int) -> None:
        self.name = habits.name
        self.price: Price | None = None
        self.stop_policy = habits.stop_policy
        self.tokenizer = habits.tokenizer
        self.owed: list[Owed] = []
        self._habits = habits
        self._turns = iter(turns)
        self._chance = random.Random(seed)
        found = vocabulary_of("", habits.vocabulary)
        assert found is not None
        self._vocabulary: Vocabulary = found
        self._tokenizer = load(habits.vocabulary)
        self.on_token = lambda: None

    def input_of(self, request: ModelRequest) -> int:
        habits, count = self._habits, self._vocabulary.count
        tokens = habits.hidden_prompt + count(request.instructions or "")
        if request.tools:
            tokens += 12 + round(count(msgspec.json.encode(request.tools).decode()) * 0.9)
        for message in request.messages:
            tokens += self._message(message)
        return tokens

    def _message(self, message: Message) -> int:
        habits, count = self._habits, self._vocabulary.count
        match message:
            case UserMessage(content):
                return habits.per_message + sum(count(part.text) for part in content if isinstance(part, Text))
            case ToolMessage(results):
                return sum(habits.per_message + count(result.text) for result in results)
            case AssistantMessage(content):
                tokens = habits.per_message
                for part in content:
                    match part:
                        case Text() | CutNote():
                            tokens += count(part.text)
                        case Reasoning():
                            pass  # providers drop the reasoning of earlier turns
                        case ToolCall():
                            written = msgspec.json.encode(part.arguments).decode()
                            tokens += habits.per_call + count(part.name + written)
                return tokens
        raise AssertionError(message)

    @asynccontextmanager
    async def stream(self, request: ModelRequest):
        owed = Owed(self.input_of(request))
        self.owed.append(owed)
        deltas = self._play(next(self._turns), owed)
        try:
            yield deltas
        finally:
            await deltas.aclose()
            if self._habits.stop_policy == "drain" and not owed.finished:
                owed.output = self._whole  # it bills the whole answer whether or not anybody listens

    async def _play(self, turn: Turn, owed: Owed) -> AsyncIterator[Delta]:
        habits, chance = self._habits, self._chance
        hidden = chance.randint(*habits.hidden_reasoning)
        written = [(name, msgspec.json.encode(arguments).decode()) for name, arguments in turn.calls]
        count = self._vocabulary.count
        self._whole = (
            hidden
            + count(turn.reasoning)
            + count(turn.text)
            + sum(habits.per_call + count(name + text) for name, text in written)
            + habits.end_mark
        )
        yield AnswerStart(f"request-{len(self.owed)}", self.name)
        if habits.reports == "start":
            yield UsageDelta(input=owed.input, output=1)
        owed.output, owed.reasoning = hidden, hidden
        async for delta in self._words(turn.reasoning, owed, ReasoningDelta):
            yield delta
        async for delta in self._words(turn.text, owed, TextDelta):
            yield delta
        for number, (name, text) in enumerate(written):
            call_id = f"call_{len(self.owed)}_{number}"
            base = owed.output + habits.per_call
            owed.output = base + count(name)
            owed.calls += 1
            yield ToolCallStart(call_id, name)
            owed.output = base
            async for delta in self._words(
                text, owed, lambda piece, call_id=call_id: ToolCallArguments(call_id, piece), name
            ):
                yield delta
            yield ToolCallEnd(call_id)
        owed.output = self._whole
        owed.reasoning += count(turn.reasoning)
        owed.finished = True
        thought = owed.reasoning if habits.hidden_reasoning != (0, 0) or turn.reasoning else None
        if habits.reports != "never":
            yield UsageDelta(owed.input, owed.output, reasoning=thought, final=True)
        yield AnswerEnd("tool_use" if turn.calls else "end_turn")

    async def _words(self, text: str, owed: Owed, make, before: str = "") -> AsyncIterator[Delta]:
        """The text in pieces of whole tokens, as a provider sends them."""
        base, sent = owed.output, 0
        for end, tokens in token_ends(self._tokenizer, before, text, self._chance, self._habits.chunk_tokens):
            await asyncio.sleep(0)
            owed.output = base + tokens
            yield make(text[sent:end])
            sent = end
            if self._habits.reports == "chunks":
                yield UsageDelta(owed.input, owed.output)
            self.on_token()


def token_ends(
    tokenizer, before: str, text: str, chance: random.Random, size: tuple[int, int]
) -> list[tuple[int, int]]:
    """Where chunks of whole tokens end, and how many tokens there are by then. No chunk ends inside a character."""
    tokens = tokenizer.encode_ordinary(before + text)
    ends: list[tuple[int, int]] = []
    held, want = 0, chance.randint(*size)
    for number, at in enumerate(_lengths(tokenizer, tokens, before + text), 1):
        held += 1
        if at is not None and at > len(before) and held >= want:
            ends.append((at - len(before), number))
            held, want = 0, chance.randint(*size)
    if text and (not ends or ends[-1][0] < len(text)):
        ends.append((len(text), len(tokens)))
    return ends


def _lengths(tokenizer, tokens: list[int], text: str):
    """How many characters the first n tokens stand for; None where that is not a whole number."""
    if tokenizer.family == "BPE":
        whole, at = text.encode(), 0
        for token in tokens:
            at += len(tokenizer.decode_bytes([token]))
            inside = at < len(whole) and (whole[at] & 0xC0) == 0x80
            yield None if inside else len(whole[:at].decode())
        return
    # SentencePiece: word by word, since its decoder takes only whole texts.
    number = at = 0
    for word in re.split(r"(?<=[A-Za-z])(?= [A-Za-z])", text):
        alone = word.removeprefix(" ") if at and adds_space(tokenizer) else word
        count = len(tokenizer.encode_ordinary(alone))
        yield from (None for _ in range(count - 1))
        at, number = at + len(word), number + count
        yield at
    assert number == len(tokens)


load = cache(splintr.Tokenizer.from_pretrained)


@cache
def adds_space(tokenizer) -> bool:
    return len(tokenizer.encode_ordinary("a b")) != 1 + len(tokenizer.encode_ordinary(" b"))


@dataclass
class Score:
    """How the estimates of one provider did against the truth."""

    cuts: int = 0
    input_held: int = 0
    output_held: int = 0
    zeros: int = 0
    output_errors: list[float] = field(default_factory=list)
    output_close: int = 0
    output_off: list[tuple[int, int]] = field(default_factory=list)  # guess and truth, where all was known
    untaught: int = 0
    output_guessed: int = 0
    output_owed: int = 0
    input_errors: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    open_above: int = 0
