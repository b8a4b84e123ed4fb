"""The vocabularies that models count in, from packages that bring their tables along: nothing is fetched.

`splintr-rs` has those of OpenAI, Llama, Qwen, DeepSeek, Kimi, GLM, Mistral and Gemma; `ctok` has Claude's and needs
Python 3.12. Both come with `quiesce[tokens]`. A vocabulary is loaded in a thread, when something is first to be counted
in it: a process whose answers are all reported never holds one. Without the packages, or for an unknown model, tokens
are estimated from bytes, with a wider interval.
"""

from __future__ import annotations

import importlib
import os
import re
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

from ..._threads.loading import call_all, start_loading

Count = Callable[[str], int]
# Longer texts are not counted but estimated: counting would hold the event loop, and with it a stop, for too long.
_LONGEST: Final = 200_000
_LONGEST_IN_SLOW: Final = 4096
# Tokenizers need more than linear time for a word, and some end the process when it is very long.
_LONGEST_WORD: Final = 50_000


class Vocabulary:
    """Counts the tokens of a text as one model would.

    `slow` says that counting a long answer takes noticeably long, so that it is counted while it is streamed. `load`
    gives the function that counts again, after `unload()`.
    """

    def __init__(self, name: str, count: Count, *, slow: bool = False, load: Callable[[], Count] | None = None) -> None:
        self.name: Final = name
        self.slow: Final = slow
        self._count: Count | None = count
        self._load: Final = load
        # Some vocabularies put a space before every text. What continues a text then brings one space too many.
        self._adds_space: Final = count("a b") != count("a") + count(" b")

    def __repr__(self) -> str:
        return f"<Vocabulary {self.name}>"

    def count(self, text: str) -> int:
        """The number of tokens of a whole text."""
        if not text:
            return 0
        count = self._count or self.load()
        try:
            return count(text)
        except UnicodeEncodeError:  # half of a surrogate pair, where a stream split it
            return count(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))

    def load(self) -> Count:
        """Load the tables again, after `unload()`."""
        if self._count is None:
            assert self._load is not None
            self._count = self._load()
        return self._count

    @property
    def is_loaded(self) -> bool:
        """Whether it can count at once."""
        return self._count is not None

    def unload(self) -> None:
        """Give back the memory of the tables, where they can be loaded again."""
        if self._load is not None:
            self._count = None

    def takes_long(self, text: str) -> bool:
        """Whether counting a text would delay a stop noticeably."""
        if len(text) > (_LONGEST_IN_SLOW if self.slow else _LONGEST):
            return True
        return len(text) > _LONGEST_WORD and max(map(len, text.split()), default=0) > _LONGEST_WORD

    def count_on(self, text: str) -> int:
        """The number of tokens of a continuation: a text that begins with a space and a letter, after a letter."""
        return self.count(text[1:] if self._adds_space else text)


_given: Final[dict[str, Vocabulary]] = {}


def register_vocabulary(name: str, count: Count, *, slow: bool = False) -> None:
    """Teach Quiesce a vocabulary: `count` returns the tokens of a text. A model names it in `tokenizer`."""
    _given[name] = Vocabulary(name, count, slow=slow)


def may_have_vocabulary(model: str, tokenizer: str | None = None) -> bool:
    """Whether there may ever be a vocabulary for a model: not where neither a tokenizer nor its name tells one."""
    return tokenizer is not None or _by_model(model) is not None


def loaded_vocabulary(model: str, tokenizer: str | None = None) -> Vocabulary | None:
    """The vocabulary that a model says it uses, or that its name tells, if it is loaded. Never waits."""
    name = _name(model, tokenizer)
    if name is None:
        return None
    found = _given.get(name) or _loaded.get(name)
    return found if found is not None and found.is_loaded else None


def can_be_loaded(model: str, tokenizer: str | None = None) -> bool:
    """Whether the vocabulary of a model is not loaded, and may be had from a package that is installed."""
    name = _name(model, tokenizer)
    if name is None or name in _given or name in _missing or not _is_installed(name):
        return False
    found = _loaded.get(name)
    return found is None or not found.is_loaded


def load_vocabulary(model: str, tokenizer: str | None = None, then: Callable[[], None] | None = None) -> None:
    """Begin to load the vocabulary of a model, in a thread, which takes a quarter of a second.

    `then` is called once, when it is loaded or cannot be: in that thread, or at once.
    """
    name = _name(model, tokenizer)
    calls = [] if then is None else [then]
    if name is None or not can_be_loaded(model, tokenizer):
        call_all(calls)
        return
    waiting = _loading.setdefault(name, calls)
    if waiting is calls:
        # Without a thread, what was estimated stays an estimate.
        start_loading(partial(_load, name), calls, lambda: _loading.pop(name, None), name="quiesce-vocabulary")
        return
    waiting.extend(calls)
    if _loading.get(name) is not waiting:  # it has ended meanwhile, perhaps before these were added
        call_all(waiting)


def vocabulary_of(model: str, tokenizer: str | None = None) -> Vocabulary | None:
    """The vocabulary of a model, once it is loaded; None when it is not known here. Waits, so it is not for a loop."""
    loaded = threading.Event()
    load_vocabulary(model, tokenizer, loaded.set)
    loaded.wait()
    return loaded_vocabulary(model, tokenizer)


def unload_vocabularies() -> None:
    """Give back the memory of the vocabularies that were loaded, about 40 MB each.

    What is next to be counted in one loads it again. Those that were registered stay.
    """
    for name in tuple(_loading):
        vocabulary_of("", name)
    for vocabulary in tuple(_loaded.values()):
        vocabulary.unload()


def counts_slowly(model: str, tokenizer: str | None = None) -> bool:
    """Whether counting in the vocabulary of a model takes noticeably long. It is not loaded for that."""
    name = _name(model, tokenizer)
    if name is None or name in _given:
        return name is not None and _given[name].slow
    return name in SLOW or name.startswith("claude-")


def _name(model: str, tokenizer: str | None) -> str | None:
    if tokenizer is not None and tokenizer in _given:
        return tokenizer
    return _family(tokenizer, model) if tokenizer is not None else _by_model(model)


_loading: Final[dict[str, list[Callable[[], None]]]] = {}
"""What is to be called when a vocabulary is loaded."""
_loaded: Final[dict[str, Vocabulary]] = {}
_missing: Final[set[str]] = set()
"""Those that no installed package has."""
SLOW: Final = frozenset({"llama2", "mistral_v1", "mistral_v2", "gemma2", "gemma3"})
"""Vocabularies of `splintr-rs` that are no byte pair encodings."""


_ALIASES: Final = {
    "o200k": "o200k_base",
    "cl100k": "cl100k_base",
    "gpt_oss": "gpt-oss",
    "llama": "llama3",
    "qwen": "qwen3",
    "qwen2": "qwen3",
    "qwen2.5": "qwen3",
    "deepseek": "deepseek_v3",
    "kimi": "kimi_k2",
    "glm": "glm4",
    "mistral": "mistral_v3",
    "tekken": "mistral_v3",
    "gemma": "gemma3",
    "gemini": "gemma3",
}

# Families whose vocabulary depends on the version that only the model's name tells, with what such a name holds.
_BY_NAME: Final = {
    "openai": "",
    "claude": "",
    "anthropic": "",
    "llama": "llama",
    "llama3": "llama",
    "qwen": "qwen",
    "deepseek": "deepseek",
    "kimi": "kimi",
    "glm": "glm",
    "mistral": "stral",
    "gemma": "gemma",
    "gemini": "gemini",
}


def _family(tokenizer: str, model: str) -> str | None:
    found = _by_model(model)
    if found is not None and tokenizer in _BY_NAME:
        return found
    if tokenizer in _BY_NAME and _BY_NAME[tokenizer] in model.lower():
        return None  # a later generation, with a vocabulary of its own
    return _ALIASES.get(tokenizer, tokenizer)


# The first pattern that the model's name holds decides. A name that only looks alike, such as a later generation with
# a vocabulary of its own, must not match: a wrong vocabulary is worse than none.
_PATTERNS: Final = (
    (r"gpt-oss", "gpt-oss"),
    (r"gpt-4o|chatgpt-4o|gpt-4\.[15]|gpt-[5-9]|(^|[/:.])o[134](-|$)|codex-mini|computer-use-preview", "o200k_base"),
    (r"gpt-4(?![\d.o])|gpt-3\.5", "cl100k_base"),
    (r"distill-llama|llama-?3|llama3", "llama3"),
    (r"distill-qwen|qwq|qwen-?2(\.5)?|qwen-?3(?!\.)", "qwen3"),
    (r"llama-?2|vicuna|tinyllama", "llama2"),
    (r"deepseek-?(v3|r1|chat|reasoner|coder-v3)", "deepseek_v3"),
    (r"kimi-k2", "kimi_k2"),
    (r"kimi-k3", "kimi_k3"),
    (r"glm-?4", "glm4"),
    (r"mixtral-8x7b|mistral-7b-(instruct-)?v0\.[12]", "mistral_v1"),
    (r"mixtral-8x22b|mistral-7b-(instruct-)?v0\.3|codestral-22b", "mistral_v2"),
    (
        r"mistral-(nemo|large|medium|small)|open-mistral|ministral|pixtral|magistral|devstral|codestral",
        "mistral_v3",
    ),
    (r"gemma-?2|gemini-1\.5", "gemma2"),
    (r"gemma-?3|gemini-[23]", "gemma3"),
    (r"gemma-?4", "gemma4"),
    (r"phi-?4", "phi4"),
    (r"olmo-?2", "olmo2"),
)
_CLAUDE: Final = r"claude-(?:[a-z]+-)?(\d)(?:[-.](\d{1,2})(?!\d))?"


@cache
def _by_model(model: str) -> str | None:
    model = model.lower()
    claude = re.search(_CLAUDE, model)
    if claude is not None:
        return _claude_generation(int(claude[1]), int(claude[2] or 0))
    return next((name for pattern, name in _PATTERNS if re.search(pattern, model)), None)


def _claude_generation(major: int, minor: int) -> str | None:
    if major < 3:
        return None
    if (major, minor) < (4, 7):
        return "claude-3.0"
    return "claude-4.7" if (major, minor) == (4, 7) else "claude-4.8"


# The first text that is not plain words builds tables for a tenth of a second: here, and not in the middle of a stop.
_WARM_UP: Final = "Übung 日本 123 {}\n\n  x"


@cache
def _is_installed(name: str) -> bool:
    """Whether the package is there that may have a vocabulary."""
    import importlib.util

    return importlib.util.find_spec("ctok" if name.startswith("claude-") else "splintr") is not None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loading.clear)  # the thread is the parent's


def _load(name: str) -> None:
    """Load a vocabulary, in its one thread."""
    found = _loaded.get(name)
    if found is not None:
        found.load()
        return
    try:
        _loaded[name] = _load_claude(name) if name.startswith("claude-") else _load_splintr(name)
    except (ImportError, ValueError):  # the package cannot be imported, or does not have this one
        _missing.add(name)


def _load_splintr(name: str) -> Vocabulary:
    load = partial(_splintr_count, name)
    return Vocabulary(name, load(), slow=name in SLOW, load=load)


def _splintr_count(name: str) -> Count:
    tokenizer: Any = importlib.import_module("splintr").Tokenizer.from_pretrained(name)
    encode = tokenizer.encode_ordinary  # a control token that is spelled out in a text is only text
    tokenizer.encode_batch([_WARM_UP])  # in contrast to `encode` this lets other threads run
    return lambda text: len(encode(text))


def _load_claude(name: str) -> Vocabulary:
    token_count: Any = importlib.import_module("ctok").token_count
    version = name.removeprefix("claude-")
    frame = token_count("a", version) - 1  # what a message costs beside its text
    return Vocabulary(name, lambda text: token_count(text, version) - frame, slow=True)
