"""A counter with a race in it, for the test of the explorer."""


class Counter:
    """Reads, then writes: what another thread adds in between is lost."""

    def __init__(self) -> None:
        self.value = 0

    def add(self) -> None:
        """Add one."""
        seen = self.value
        self.value = seen + 1
