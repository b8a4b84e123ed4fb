"""gzip for complete answers; the document of the interface, and its page."""

from __future__ import annotations

import gzip
import threading

import pytest
from starlette.testclient import TestClient

from quiesce.server import Settings, compression, create_app
from quiesce.server.openapi import OPERATIONS, document
from quiesce.server.openapi_words import FIELD_WORDS, OPERATION_WORDS, TAGS

from .support import serving, talker

pytestmark = pytest.mark.feature


def test_json_is_compressed_for_clients_that_take_it_and_streams_are_not() -> None:
    with serving(talker()) as served, served.client() as client:
        plain = client.get("/openapi.json", headers={"Accept-Encoding": "identity"})
        packed = client.get("/openapi.json", headers={"Accept-Encoding": "gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        refused = client.get("/openapi.json", headers={"Accept-Encoding": "br, gzip;q=0"})
        assert "content-encoding" not in refused.headers
        refused = client.get("/openapi.json", headers={"Accept-Encoding": "*, gzip;q=0"})
        assert "content-encoding" not in refused.headers
        assert packed.json() == plain.json()
        assert int(packed.headers["content-length"]) < len(plain.content) / 4
        assert "Accept-Encoding" in packed.headers["vary"]
        assert (
            "content-encoding" not in client.get("/healthz", headers={"Accept-Encoding": "gzip"}).headers
        )  # too short
        run = client.post("/runs", json={"prompt": "hi"}).json()["run"]["id"]
        with client.stream("GET", f"/runs/{run}/events", headers={"Accept-Encoding": "gzip"}) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert "content-encoding" not in stream.headers
            assert b"run_ended" in b"".join(stream.iter_bytes())


@pytest.mark.promise("P1")
def test_a_long_answer_is_compressed_outside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[int, str] = {}

    def squeeze(whole: bytes) -> bytes:
        threads[len(whole)] = threading.current_thread().name
        return gzip.compress(whole)

    monkeypatch.setattr(compression, "squeeze", squeeze)
    monkeypatch.setattr(compression, "_LEAST", 10)
    with TestClient(create_app(talker())) as client:
        client.get("/openapi.json")
        client.get("/agents")
    long, short = max(threads), min(threads)
    assert long > 32 * 1024 > short
    assert threads[long] != threads[short]
    assert "AnyIO worker" in threads[long]


def test_every_operation_and_every_field_is_described() -> None:
    whole = document(Settings())
    schemas = whole["components"]["schemas"]
    fields = {
        f"{name}.{field}": each for name, one in schemas.items() for field, each in one.get("properties", {}).items()
    }
    assert [name for name, each in fields.items() if not each.get("description")] == []
    assert FIELD_WORDS.keys() <= fields.keys()
    assert [name for name, each in schemas.items() if not each.get("description") and each.get("properties")] == []
    assert {each.id for each in OPERATIONS} == set(OPERATION_WORDS)
    for methods in whole["paths"].values():
        for each in methods.values():
            assert each["description"].endswith(".")
            assert set(each["tags"]) <= set(TAGS)
            assert all(parameter["description"] for parameter in each["parameters"])
            body = each.get("requestBody", {}).get("content", {}).get("application/json")
            assert body is None or "example" in body


def test_the_page_of_the_document_is_under_the_same_policy() -> None:
    with TestClient(create_app(talker())) as client:
        page = client.get("/docs")
        assert page.status_code == 200
        assert "default-src 'none'; script-src 'self'" in page.headers["content-security-policy"]
        assert "http" not in page.text.replace("HTTP", "")  # no other host
