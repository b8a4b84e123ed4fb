"""A terminal that may go away at any moment, without holding up what still has to settle."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from textual.driver import Driver


class _Lenient:
    """A file to which writing never fails. Textual's writer ends at the first error, and then whoever writes waits."""

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
    """The same driver, which goes on when the terminal is gone."""

    class Lenient(driver):  # pyright: ignore[reportUntypedBaseClass]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._file = _Lenient(getattr(self, "_file", None))

    return Lenient
