"""`python -m quiesce.demo`."""

from __future__ import annotations

import asyncio
import sys

from .keyboard import has_keyboard
from .scenes import by_hand, by_itself
from .screen import Screen


def main() -> int:
    """Run the demo. On a terminal the user stops the agent, elsewhere it stops itself. `--scripted`: no local model."""
    screen = Screen()
    demo = by_hand if has_keyboard() else by_itself
    try:
        asyncio.run(demo(screen, prologue="--scripted" not in sys.argv[1:]))
    except KeyboardInterrupt:
        screen.goodbye()
    return 0


if __name__ == "__main__":
    sys.exit(main())
