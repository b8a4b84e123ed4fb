"""From a draft to a prompt: pasted blocks, attached files, and the completion of commands and paths."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..cancellation import Mode
from ..errors import ConfigurationError
from ..messages import Document, Image, Text, UserContent
from .chat_backend import ChatPrompt
from .sanitize import clean

# A paste with more lines or characters than this is shown as one word.
_LONGEST_LINES: Final = 8
_LONGEST_TEXT: Final = 1000
_LARGEST_TEXT: Final = 512 * 1024
_LARGEST_FILE: Final = 5 * 1024 * 1024
_MOST_OPTIONS: Final = 50
_MOST_ENTRIES: Final = 5000
_MENTION: Final = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
_WORD: Final = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]*)|(\S*))$')
_PUNCTUATION: Final = ".,;:!?)]}'\""
_IMAGES: Final = {
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
}  # fmt: skip


class PastedBlocks:
    """Long pasted texts, each by the word that stands for it in the draft."""

    def __init__(self) -> None:
        self._texts: Final[dict[str, str]] = {}

    def fold(self, text: str) -> str:
        """The word for a pasted text; a short text stays as it is, and an image file becomes an attachment."""
        if (path := _dropped_image(text)) is not None:
            return mention(str(path))
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines <= _LONGEST_LINES and len(text) <= _LONGEST_TEXT:
            return text
        size = f"{lines} lines" if lines > 1 else f"{len(text)} characters"
        word = f"[pasted {size}]"
        number = 2
        while self._texts.get(word, text) != text:
            word, number = f"[pasted {size}, {number}]", number + 1
        self._texts[word] = text
        return word

    def unfold(self, text: str) -> str:
        """The text with everything that was pasted."""
        for word, pasted in self._texts.items():
            if word in text:
                text = text.replace(word, pasted)
        return text


def _dropped_image(text: str) -> Path | None:
    """The file that a terminal names when an image is dropped on it; None for other text."""
    name = text.strip().strip("'\"").replace("\\ ", " ")
    if "\n" in name or not name.lower().endswith(tuple(_IMAGES)):
        return None
    path = _path(name.removeprefix("file://"))
    return path if _is_file(path) else None


def _path(name: str) -> Path:
    """The path that a name stands for. A `~` with an unknown user is only text."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


def mention(path: str) -> str:
    """A path as it is written in a prompt."""
    return f'@"{path}"' if re.search(r"\s", path) else f"@{path}"


def compose(text: str, pasted: PastedBlocks | None = None) -> ChatPrompt:
    """The prompt of a draft. Files that `@path` names are attached; what is in a pasted block names none.

    Raises `ConfigurationError` for a file that cannot be attached.
    """
    shown = text.strip()
    files = attached_files(shown)
    parts = tuple(_part(path) for path in files)
    whole = shown if pasted is None else pasted.unfold(shown)
    names = "".join(f"\n  + {clean(str(path))} ({_size(path.stat().st_size)})" for path in files)
    return ChatPrompt(shown + names, (Text(whole), *parts))


def attached_files(text: str) -> tuple[Path, ...]:
    """The files that a prompt names with `@path`, each once. A name without a file is only text."""
    found: dict[Path, None] = {}
    for quoted, bare in _MENTION.findall(text):
        for name in (quoted, bare, bare.rstrip(_PUNCTUATION)):
            path = _path(name)
            if name and _is_file(path):
                found[path] = None
                break
    return tuple(found)


def _is_file(path: Path) -> bool:
    """Whether it is an ordinary file: a pipe or a device could wait for ever."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _part(path: Path) -> UserContent:
    kind = path.suffix.lower()
    is_binary = kind in _IMAGES or kind == ".pdf"
    largest = _LARGEST_FILE if is_binary else _LARGEST_TEXT
    try:
        with path.open("rb") as file:
            data = file.read(largest + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.", kept="The draft is kept.") from error
    if len(data) > largest:
        raise ConfigurationError(f"{path} is larger than {_size(largest)}.", kept="The draft is kept.")
    if kind in _IMAGES:
        return Image(_IMAGES[kind], data)
    if kind == ".pdf":
        return Document(data=data, name=path.name)
    try:
        return Text(f'\n\n<file path="{path}">\n{data.decode()}\n</file>')
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is neither text nor an image or a PDF.", kept="The draft is kept.") from None


def _size(count: int) -> str:
    return (
        f"{count} bytes" if count < 1024 else f"{count / 1024:.0f} kB" if count < 2**20 else f"{count / 2**20:.1f} MB"
    )


# --- Completion -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Completion:
    """What the word before the cursor can become: `start` is where it begins."""

    start: int
    options: tuple[str, ...]


_NO_COMPLETION: Final = Completion(0, ())


def complete(before: str, commands: tuple[str, ...]) -> Completion:
    """How the text before the cursor can go on: a command, the mode of a stop, or a path after `@`."""
    if before.startswith("/stop "):
        found = tuple(mode.value for mode in Mode if mode.value.startswith(before[6:]))
        return _unless_complete(Completion(6, found), before)
    if before.startswith("/"):
        found = tuple(name for name in commands if name.startswith(before))
        return _unless_complete(Completion(0, found), before)
    word = _WORD.search(before)
    if word is None:
        return _NO_COMPLETION
    return _unless_complete(Completion(word.start(), _paths(word[1] or word[2] or "")), before)


def _unless_complete(found: Completion, before: str) -> Completion:
    return _NO_COMPLETION if found.options == (before[found.start :],) else found


def _paths(begun: str) -> tuple[str, ...]:
    """The paths that begin like this, as they are written in a prompt. Hidden ones only after a dot."""
    folder, slash, prefix = begun.rpartition("/")
    where = _path(folder + slash or ".")
    try:
        with os.scandir(where) as entries:
            found = [
                (each.name, each.is_dir())
                for _, each in zip(range(_MOST_ENTRIES), entries, strict=False)
                if each.name.lower().startswith(prefix.lower()) and (prefix or not each.name.startswith("."))
            ]
    except (OSError, ValueError):
        return ()
    # A name that a terminal would obey, or that ends the quotes, cannot be completed.
    names = sorted(f"{name}/" if is_folder else name for name, is_folder in found if clean(name) == name)
    return tuple(_begun_mention(f"{folder}{slash}{name}") for name in names if '"' not in name)[:_MOST_OPTIONS]


def _begun_mention(path: str) -> str:
    """A path to choose. The quotes of a folder stay open: its files follow."""
    whole = mention(path)
    return whole.removesuffix('"') if path.endswith("/") else whole
