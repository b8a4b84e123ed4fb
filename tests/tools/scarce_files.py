"""A process that may open ever more files, from none on, calls a tool. Prints each result, and the files left open.

`python scarce_files.py worker` is for a tool in a worker process, `program` for one that runs a program.
"""

from __future__ import annotations

import os
import resource
import sys

import oddities
from tool_runs import call, killable, run_async

from quiesce.tools.builtin import make_shell
from quiesce.tools.worker.pool import pool

TOOLS = {
    "worker": (killable(oddities.process_id), {}),
    "program": (make_shell(name="run_true", grace=0.05), {"command": "true"}),
}


def open_files() -> set[int]:
    return set(map(int, os.listdir("/proc/self/fd")))


def close_gaps() -> None:
    """The limit is for the highest number, not for how many there are: numbers that are free below it are taken."""
    highest = max(open_files())
    while os.dup(0) < highest:
        pass


async def main(kind: str) -> None:
    each, arguments = TOOLS[kind]
    await call(each, arguments)
    pool.shut_down()
    close_gaps()
    before = open_files()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    for spare in range(14):
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(before) + spare, limits[1]))
        try:
            result = await call(each, arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        pool.shut_down()
        text = result.text.replace("\n", " ")
        print(text, sorted(open_files() ^ before), sep="\t")


if __name__ == "__main__":
    run_async(main(sys.argv[1]))
