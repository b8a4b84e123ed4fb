"""A Textual driver for a terminal that may disappear at any moment, while a run still settles."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from textual.driver import Driver


class _Lenient:
    """A file whose writes never fail. Textual's writer thread ends at the first error, and later writes would block."""

    def __init__(self, file: Any) -> None:
        self._to: Final = file

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._to.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._to.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)


def lenient(driver: type[Driver]) -> type[Driver]:
    """The same driver, but it survives the loss of the terminal."""

    class Lenient(driver):  # pyright: ignore[reportUntypedBaseClass]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._file = _Lenient(getattr(self, "_file", None))

    return Lenient
