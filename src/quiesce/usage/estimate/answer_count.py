"""The tokens of an answer, counted while it is being written or once it has ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from .content import Kind, TextPiece, kind_of
from .counting import LONGEST_REST, ByteCounter, VocabularyCounter, byte_length, counter_in
from .pieces import Pieces
from .vocabulary import Vocabulary

BlockKind: TypeAlias = Literal["text", "reasoning", "arguments"]
# The kind of content that a kind of block always has. That of a text is found by a look at it.
_KINDS: Final[dict[BlockKind, Kind]] = {"reasoning": Kind.REASONING, "arguments": Kind.JSON}


class Block(Struct, frozen=True):
    """One block of an answer: its pieces so far, and the tool's name when it is a call.

    `context` is the end of what came before these pieces in the same block, where they are only the rest of it.
    """

    kind: BlockKind
    parts: Pieces
    name: str = ""
    context: str = ""


class AnswerCounter:
    """Follows the blocks of one answer. Blocks only grow, and are always given in the same order."""

    __slots__ = ("__weakref__", "_counters", "_read", "vocabulary")

    def __init__(self, vocabulary: Vocabulary | None) -> None:
        self.vocabulary: Final = vocabulary
        self._counters: Final[list[ByteCounter | VocabularyCounter]] = []
        self._read: Final[list[int]] = []

    @property
    def begun(self) -> bool:
        """Whether it has counted anything yet."""
        return bool(self._counters)

    def catch_up(self, blocks: Iterable[Block]) -> None:
        """Count what is new."""
        try:
            for index, block in enumerate(blocks):
                if index == len(self._counters):
                    self._counters.append(counter_in(self.vocabulary))
                    self._read.append(0)
                    self._counters[index].add(block.name)
                counter, read = self._counters[index], self._read[index]
                counter.add(block.parts.text(read))
                self._read[index] = len(block.parts)
        except BaseException:
            self._start_over()
            raise

    @property
    def roughly(self) -> int:
        """The tokens so far, near enough for a budget that is checked after every piece."""
        return sum(
            counter.roughly if isinstance(counter, VocabularyCounter) else counter.tokens for counter in self._counters
        )

    def counted(self, blocks: Iterable[Block]) -> list[TextPiece]:
        """Every block, counted to its end. One that would take too long to count has no units."""
        blocks = list(blocks)
        self.catch_up(blocks)
        try:
            return [_counted(block, counter) for block, counter in zip(blocks, self._counters, strict=True)]
        except BaseException:
            self._start_over()
            raise

    def _start_over(self) -> None:
        """Forget what was counted: after an exception such as Ctrl-C, it may be half done."""
        self._counters.clear()
        self._read.clear()


def count_answer(
    vocabulary: Vocabulary | None, blocks: Iterable[Block], counter: AnswerCounter | None
) -> list[TextPiece]:
    """Every block of an answer: by the counter that has counted it while it was streamed, unless in another unit."""
    if counter is not None and counter.vocabulary is vocabulary and counter.begun:
        return counter.counted(blocks)
    counted: list[TextPiece] = []
    blocks = tuple(blocks)
    for block in blocks:
        text = block.parts.text()
        if vocabulary is not None and len(text) > LONGEST_REST:
            return AnswerCounter(vocabulary).counted(blocks)
        whole = block.name + text
        units = byte_length(whole) if vocabulary is None else vocabulary.count(whole)
        counted.append(TextPiece(_KINDS.get(block.kind) or kind_of(text), whole, units, block.kind == "arguments"))
    return counted


def _counted(block: Block, counter: ByteCounter | VocabularyCounter) -> TextPiece:
    text = block.parts.text()
    kind = _KINDS.get(block.kind) or kind_of(text)
    return TextPiece(kind, block.name + text, counter.units, block.kind == "arguments")
