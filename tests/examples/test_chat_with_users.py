"""The chat with users, with a real server and a fake provider: each user finds, stops and pays only what is theirs."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import httpx2
import pytest

from ..docs.pages import ROOT
from .serving import Served, served

pytestmark = pytest.mark.promise("P6", "P8")
STALLED = {"text": "Once upon ", "stalls": True}


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(ROOT / "examples/chat_with_users/chat.py", tmp_path_factory.mktemp("chat")) as site:
        yield site


def client(chat: Served, key: str) -> httpx2.Client:
    return httpx2.Client(base_url=chat.url, headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=60)


def test_a_user_stops_reads_and_pays_for_only_their_own_chat(chat: Served) -> None:
    with client(chat, "ann-key") as ann, client(chat, "bob-key") as bob:
        chat.model_says(STALLED)
        with ann.stream("POST", "/chats/first", json={"prompt": "A story."}) as answer:
            pieces = answer.iter_text()
            read = next(pieces)
            assert bob.post("/chats/first/stop").json() == {"receipts": []}
            (receipt,) = ann.post("/chats/first/stop").json()["receipts"]
            assert "was stopped (user: the Stop button)" in receipt
            assert read + "".join(pieces) == STALLED["text"]  # the stream ends with the run
        assert [each["text"].strip() for each in ann.get("/chats/first").json()][:1] == ["A story."]
        assert bob.get("/chats/first").status_code == 404
        assert Decimal(ann.get("/me").json()["spent"]) > 0
        assert bob.get("/me").json()["spent"] == "0"


def test_a_stranger_gets_nothing(chat: Served) -> None:
    with client(chat, "eve-key") as eve:
        assert eve.post("/chats/first", json={"prompt": "Hello."}).status_code == 401
