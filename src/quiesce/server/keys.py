"""API keys: stored as salted hashes and compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ..errors import ConfigurationError

# A key is 256 random bits, so a plain salted hash is as good as a slow one: there is nothing to guess.
_PREFIX: Final = "qk_"
_SHORTEST: Final = 20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")

ENVIRONMENT: Final = "QUIESCE_API_KEYS"
_log: Final = logging.getLogger("quiesce.server")


def new_key() -> str:
    """A new random key. Show it once to its owner, and store only `hash_key()` of it."""
    return _PREFIX + secrets.token_urlsafe(32)


def hash_key(key: str) -> str:
    """The salted hash of a key.

    Raises `ConfigurationError` for a key that is short enough to be guessed, or that no header can carry.
    """
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigurationError(
            "An API key has a line break, a space or another character that no request can send.",
            todo="Make one with `quiesce key NAME --key-file FILE`; separate keys with commas.",
        )
    if len(key) < _SHORTEST:
        raise ConfigurationError(
            f"An API key has {len(key)} characters; it needs at least {_SHORTEST}.",
            todo="Make one with `quiesce key NAME --key-file FILE`.",
        )
    salt = secrets.token_hex(16)
    return f"sha256${salt}${_digest(key, salt)}"


def _digest(key: str, salt: str) -> str:
    return hashlib.sha256(f"{salt}{key}".encode("utf-8", "surrogatepass")).hexdigest()


class Keys:
    """The hashes of all keys by owner. `owner()` takes the same time for every key."""

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._known: Final = [(_checked_name(name), *_parts(name, kept)) for name, kept in hashes.items()]
        if not self._known:
            raise ConfigurationError("There is no API key.", todo="Make one with `quiesce key NAME --key-file FILE`.")

    def owner(self, presented: str) -> str | None:
        """The owner of a key; None for an unknown key."""
        found: str | None = None
        for name, salt, digest in self._known:  # without an early exit, for constant time
            if hmac.compare_digest(_digest(presented, salt), digest):
                found = name
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The owners of the keys."""
        return tuple(name for name, _, _ in self._known)

    def __repr__(self) -> str:
        return f"<Keys of {', '.join(self.names)}>"


def keys_from_file(path: Path) -> dict[str, str]:
    """The names and hashes in a key file.

    Raises `ConfigurationError` for a missing or invalid file, and for one that other users can write: they could add a
    key of their own.
    """
    try:
        _check_permissions(path)
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The key file {path} cannot be read: {error}.") from None
    hashes: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, kept = line.strip().partition(" ")
        if not kept:  # the line may be a key itself, so it is not shown
            todo = "Make one with `quiesce key NAME --key-file FILE`."
            raise ConfigurationError(f"Line {number} of {path} is not a name and a hash.", todo=todo)
        if name in hashes:
            raise ConfigurationError(f"Line {number} of {path} repeats the name {name!r}.")
        hashes[name] = kept.strip()
    return hashes


def keys_from_environment(value: str) -> dict[str, str]:
    """The names and hashes of `name=key,name=key`; a single key without a name belongs to `default`."""
    hashes: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in value.split(","))):
        name, equals, key = part.partition("=")
        hashes[name.strip() if equals else "default"] = hash_key(key.strip() if equals else name.strip())
    return hashes


def add_key(path: Path, name: str) -> str:
    """Make a key for `name`, put its hash into the file, and return the key: it cannot be read again."""
    _checked_name(name)
    if path.exists() and name in keys_from_file(path):
        raise ConfigurationError(
            f"{path} already has a key of {name!r}.", todo="Use another name, or remove that line."
        )
    key = new_key()
    is_cut = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")  # as an editor may leave it
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(("\n" if is_cut else "") + f"{name} {hash_key(key)}\n")
    except OSError as error:
        raise ConfigurationError(f"The key file {path} cannot be written: {error.strerror}.") from None
    return key


def _check_permissions(path: Path) -> None:
    mode = path.stat().st_mode
    if os.name == "posix" and mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigurationError(
            f"Other users can write the key file {path}, and so add keys.", todo=f"chmod 600 {path}"
        )
    if os.name == "posix" and mode & (stat.S_IRGRP | stat.S_IROTH):
        _log.warning("Other users can read the key file %s. It has only hashes; chmod 600 hides them too.", path)


def merge_keys(sources: Iterable[Mapping[str, str]]) -> Keys | None:
    """The keys of all sources together; None when there are none."""
    hashes = {name: kept for source in sources for name, kept in source.items()}
    return Keys(hashes) if hashes else None


def _checked_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"{name!r} is not a valid name for a key.",
            todo="Use letters, digits, dot, dash, underscore and @; 64 at most.",
        )
    return name


def _parts(name: str, kept: str) -> tuple[str, str]:
    algorithm, _, rest = kept.partition("$")
    salt, _, digest = rest.partition("$")
    if algorithm != "sha256" or not salt or re.fullmatch(r"[0-9a-f]{64}", digest) is None:
        raise ConfigurationError(
            f"The stored hash of the key of {name!r} is not valid.", todo="Make a new one with `quiesce key`."
        )
    return salt, digest
