"""Gemini on Vertex AI: its addresses, Google's default credentials, and its counter.

The addresses and the variables are those of google-genai 3.3: `_api_client.py`, `_base_url.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quiesce import Agent
from quiesce.errors import AuthenticationFailed, ConfigurationError
from quiesce.messages import Text, UserMessage
from quiesce.models.base import ModelRequest
from quiesce.models.providers.vertex import Vertex
from quiesce.models.resolve import model_named

from .recordings import ANSWER, GEMINI
from .wire import Wire, refused, wire

pytestmark = pytest.mark.feature
ASKED = ModelRequest((UserMessage((Text("What colour?"),)),), "Be brief.")


@pytest.mark.parametrize(
    ("location", "host"),
    [
        (None, "https://aiplatform.googleapis.com"),
        ("europe-west4", "https://europe-west4-aiplatform.googleapis.com"),
        ("eu", "https://aiplatform.eu.rep.googleapis.com"),
    ],
)
def test_where_it_is(location: str | None, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "sky")
    if location is not None:
        monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", location)
    model: Any = model_named("vertex:gemini-2.5-flash", access_token=lambda: "token")
    where = location or "global"
    assert model.base_url == f"{host}/v1beta1/projects/sky/locations/{where}/publishers/google"
    assert (model.name, model.tokenizer, model.stop_policy) == ("vertex:gemini-2.5-flash", "gemma", "drain")


def test_which_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    with pytest.raises(ConfigurationError, match="GOOGLE_CLOUD_PROJECT"):
        Vertex("gemini-2.5-flash", access_token=lambda: "token")


def granted(token: str) -> bytes:
    body = json.dumps({"access_token": token, "expires_in": 3600, "token_type": "Bearer"}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


@pytest.fixture
def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Wire], None]:
    """A function that makes Google's default credentials those of a service account, whose tokens a server grants."""
    pytest.importorskip("google.auth")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )

    def use(server: Wire) -> None:
        account = {
            "type": "service_account",
            "project_id": "sky",
            "private_key_id": "1",
            "private_key": key.decode(),
            "client_email": "sky@sky.iam.gserviceaccount.com",
            "token_uri": f"{server.url}/token",
        }
        (tmp_path / "account.json").write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))

    return use


def test_googles_default_credentials_are_found_and_used_again(service_account: Any) -> None:
    async def main() -> None:
        async with wire(granted("ya29.first"), otherwise=GEMINI.answer.response) as server:
            service_account(server)
            agent = Agent(Vertex("gemini-2.5-flash", project="sky", base_url=server.url))
            for _ in range(2):
                assert (await agent.invoke_async("What colour?")).text == ANSWER
            token, first, second = server.requests
            assert token.path == "/token"
            expected = "/v1beta1/projects/sky/locations/global/publishers/google/models/gemini-2.5-flash"
            assert first.path.startswith(f"{expected}:streamGenerateContent")
            assert first.headers["authorization"] == second.headers["authorization"] == "Bearer ya29.first"

    asyncio.run(main())


def test_credentials_that_are_refused(service_account: Any) -> None:
    async def main() -> None:
        async with wire(otherwise=refused(400, {"error": "invalid_grant"})) as server:
            service_account(server)
            run = Agent(Vertex("gemini-2.5-flash", project="sky", base_url=server.url)).start("What colour?")
            with pytest.raises(AuthenticationFailed, match="gcloud auth"):
                await run
            assert {request.path for request in server.requests} == {"/token"}

    asyncio.run(main())


@pytest.mark.promise("P6")
def test_its_counter_takes_a_request_without_a_wrapper() -> None:
    async def main() -> None:
        body = json.dumps({"totalTokens": 31}).encode()
        reply = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        async with wire(reply) as server:
            model = Vertex("gemini-2.5-flash", project="sky", base_url=server.url, access_token=lambda: "token")
            assert await model.count_tokens(ASKED) == 31
            assert set(server.requests[0].json) == {"contents", "systemInstruction"}

    asyncio.run(main())
