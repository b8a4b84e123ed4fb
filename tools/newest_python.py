"""Prints the newest Python of this machine that is newer than the one that runs this, or nothing.

It looks at the versions of pyenv, and at `python3.N` in the path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Python 3.14 and later are tried as soon as the machine has them.
LAST_MINOR = 30


def candidates() -> Iterator[str]:
    """The programs that may be a Python."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from (str(each) for each in root.glob("versions/3.*/bin/python"))
    found = (shutil.which(f"python3.{minor}") for minor in range(sys.version_info.minor + 1, LAST_MINOR))
    yield from (each for each in found if each is not None)


def version(program: str) -> tuple[int, ...]:
    """The version of a Python that can be run; empty when it cannot, or is no final release."""
    try:
        said = subprocess.run([program, "-V"], capture_output=True, text=True, timeout=20, check=True).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ()
    match = re.fullmatch(r"Python (\d+)\.(\d+)\.(\d+)", said.strip())
    return () if match is None else tuple(map(int, match.groups()))


def newest() -> str:
    """The newest Python whose minor version is greater than that of this one, or an empty string."""
    found = {program: version(program) for program in candidates()}
    newer = {program: known for program, known in found.items() if known[:2] > sys.version_info[:2]}
    return max(newer, key=lambda program: newer[program], default="")


if __name__ == "__main__":
    print(newest())
