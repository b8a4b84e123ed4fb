"""The certificates of an installation are read once in a process, and only for https addresses."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.promise("P1")

PROGRAM = """
import ssl

read = []
create = ssl.create_default_context
ssl.create_default_context = lambda *args, **options: read.append(args) or create(*args, **options)

from quiesce.client import Client
from quiesce.models.providers.openai_chat import OpenAIChat
from quiesce.tools.builtin.public_network import PublicTransport

Client("http://127.0.0.1:8765")
OpenAIChat("m", base_url="http://127.0.0.1:8080/v1", api_key="k")
print(len(read))
Client("https://example.com")
OpenAIChat("m", api_key="k")
PublicTransport(())
PublicTransport(())
print(len(read))
"""


def test_certificates_are_read_once_and_not_for_http() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.split(), done.stderr) == (["0", "1"], "")
