"""How much memory and processor time a call may use."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import NamedTuple


class Allowance(NamedTuple):
    """What one call may use: bytes of memory on top of what its process has already, seconds of processor time."""

    memory: int | None = None
    cpu: float | None = None

    def claim(self) -> None:
        """Hold this process, and all that it starts, to the allowance from now on."""
        import resource

        _lower(resource.RLIMIT_CORE, 0)
        if self.memory is not None:
            _lower(resource.RLIMIT_AS, _address_space() + self.memory)
        if self.cpu is not None:
            _lower(resource.RLIMIT_CPU, math.ceil(_processor_time() + self.cpu))

    @contextmanager
    def claimed(self) -> Generator[None]:
        """Hold this process to the allowance inside the block. Only the soft limits move, so that they can go back."""
        if self.memory is None and self.cpu is None:
            yield
            return
        import resource

        kinds = (resource.RLIMIT_AS, resource.RLIMIT_CPU)
        before = [(kind, resource.getrlimit(kind)) for kind in kinds]
        self.claim()
        try:
            yield
        finally:
            for kind, limits in before:
                with suppress(ValueError, OSError):  # the function has lowered what cannot be raised again
                    resource.setrlimit(kind, limits)


def _lower(kind: int, soft: int) -> None:
    import resource

    _, hard = resource.getrlimit(kind)
    with suppress(ValueError, OSError):  # macOS does not limit everything
        resource.setrlimit(kind, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _address_space() -> int:
    import resource

    try:
        with open("/proc/self/statm") as pages:
            return int(pages.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _processor_time() -> float:
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
