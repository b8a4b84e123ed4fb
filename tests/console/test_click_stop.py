"""From the click on Stop to the provider's connection closed, two hundred times."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .browser import find_chromium


@pytest.mark.proof
@pytest.mark.promise("P1", "P5")
@pytest.mark.timeout(1800)
def test_two_hundred_clicks_each_close_the_providers_connection(capfd: pytest.CaptureFixture[str]) -> None:
    if find_chromium() is None:
        pytest.skip("THE CLICKS ARE NOT MEASURED: no chromium here")
    command = [sys.executable, "-m", "bench", "click_stop"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"200 clicks: median [\d.]+ ms, p99 [\d.]+ ms", done.stdout), done.stdout
    with capfd.disabled():
        print(f"\n{done.stdout.strip()}")
