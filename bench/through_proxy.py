"""A turn with a tool through an HTTP proxy on this machine, beside the bare clients through the same proxy.

python -m bench.through_proxy [turns] [rounds]
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys

from . import tool_turns
from ._proxy import running_proxy
from ._server import running_server


def main(turns: int = 20, rounds: int = 9) -> None:
    """Print the figures."""
    before = os.environ.get("HTTP_PROXY")
    with running_proxy() as (proxy, relayed), running_server() as url:
        os.environ["HTTP_PROXY"] = proxy  # as people set it; all three clients read it
        try:
            taken = asyncio.run(tool_turns.measure(url, turns, rounds))
        finally:
            if before is None:
                del os.environ["HTTP_PROXY"]
            else:
                os.environ["HTTP_PROXY"] = before
        assert relayed.value >= 3 * rounds * turns  # nobody went past it
    print(f"a run of {turns} turns through a proxy, {rounds} rounds; per turn")
    for name, spent in taken.items():
        cpu = [each / turns * 1e3 for each, _ in spent]
        ratio = tool_turns.ratio_to_lines(taken, name)
        print(f"  {name:22} {min(cpu):6.2f} {statistics.median(cpu):6.2f} ms CPU   {ratio:5.2f} of the first")


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
