"""How much memory and processor time a call may use."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import NamedTuple


class ResourceLimits(NamedTuple):
    """What one call may use: bytes of memory on top of what its process has already, seconds of processor time."""

    memory: int | None = None
    cpu: float | None = None

    def apply(self) -> None:
        """Hold this process, and all that it starts, to the allowance for good: nothing can lift it again."""
        self._lower(for_good=True)

    def _lower(self, *, for_good: bool) -> None:
        import resource

        _lower(resource.RLIMIT_CORE, 0)
        if self.memory is not None:
            soft = _address_space() + int(self.memory)
            _lower(resource.RLIMIT_AS, soft, soft if for_good else None)
        if self.cpu is not None:
            soft = math.ceil(_processor_time() + self.cpu)
            # SIGXCPU at the soft limit can be ignored. A second later comes what cannot.
            _lower(resource.RLIMIT_CPU, soft, soft + 1 if for_good else None)

    @contextmanager
    def applied(self) -> Generator[None]:
        """Hold this process to the allowance inside the block. Only the soft limits move, so that they can go back."""
        if self.memory is None and self.cpu is None:
            yield
            return
        import resource

        kinds = (resource.RLIMIT_AS, resource.RLIMIT_CPU)
        before = [(kind, resource.getrlimit(kind)) for kind in kinds]
        self._lower(for_good=False)
        try:
            yield
        finally:
            for kind, limits in before:
                with suppress(ValueError, OSError):  # the function has lowered what cannot be raised again
                    resource.setrlimit(kind, limits)


def _lower(kind: int, soft: int, hard: int | None = None) -> None:
    import resource

    _, highest = resource.getrlimit(kind)
    wanted = highest if hard is None else _least(hard, highest)
    with suppress(ValueError, OSError):  # macOS does not limit everything
        resource.setrlimit(kind, (_least(soft, highest), wanted))


def _least(wanted: int, highest: int) -> int:
    import resource

    return wanted if highest == resource.RLIM_INFINITY else min(wanted, highest)


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
