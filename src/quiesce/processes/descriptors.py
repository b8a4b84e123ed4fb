"""Handles in pairs: one end stays here, the other one goes to a child."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from typing import Final, Self


class DescriptorPairs:
    """A block in which pairs are opened. At its end the children's ends are closed here; after a failure, all are.

    Where too many files are open already, opening a pair fails with those before it open: they must not stay so.
    """

    def __init__(self) -> None:
        self._kept: Final = ExitStack()
        self._given: Final = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._given.close()
        if kind is not None:
            self._kept.close()

    def sockets(self) -> tuple[socket.socket, int]:
        """A connection: our end, and the child's."""
        ours, theirs = socket.socketpair()
        self._kept.callback(ours.close)
        self._given.callback(theirs.close)
        return ours, theirs.fileno()

    def output(self) -> tuple[int, int]:
        """A pipe for what the child prints: our end, and the child's."""
        reader, writer = os.pipe()
        self._kept.callback(os.close, reader)
        self._given.callback(os.close, writer)
        return reader, writer

    def input(self) -> tuple[int, int]:
        """A pipe for what the child reads: our end, and the child's."""
        reader, writer = os.pipe()
        self._kept.callback(os.close, writer)
        self._given.callback(os.close, reader)
        return writer, reader
