"""An example that is a web app, served by uvicorn in a process of its own, with a fake provider."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..support.fake_provider import environment, fake_provider, say_next


class Served:
    def __init__(self, url: str, provider: str) -> None:
        self.url = url
        self._provider = provider

    def model_says(self, *script: dict[str, object]) -> None:
        say_next(self._provider, list(script))


@contextmanager
def served(app: Path, folder: Path) -> Iterator[Served]:
    """`app` is a file whose variable `app` is served; `folder` is where it puts its files."""
    command = [sys.executable, "-m", "uvicorn", f"{app.stem}:app", "--app-dir", str(app.parent), "--port", "0"]
    with (
        fake_provider() as provider,
        subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment(provider)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stderr is not None
        try:
            found = next(filter(None, (re.search(r"running on (http://\S+)", line) for line in process.stderr)))
            yield Served(found[1], provider)
        finally:
            process.terminate()
            process.stderr.read()
