"""Requests carry the headers that the vendor's own SDK would send: the key, the account, the version of the API."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from quiesce.errors import ModelError
from quiesce.messages import Text, UserMessage
from quiesce.models.base import ModelRequest
from quiesce.models.providers.anthropic import Anthropic
from quiesce.models.providers.openai_chat import OpenAIChat
from quiesce.models.providers.openai_responses import OpenAIResponses

pytestmark = pytest.mark.feature

ENVIRONMENT = {
    "OPENAI_ORG_ID": "an-organization",
    "OPENAI_PROJECT_ID": "a-project",
    "OPENAI_CUSTOM_HEADERS": "X-Team: blue\nX-Cost: 7",
    "ANTHROPIC_CUSTOM_HEADERS": "X-Team: green",
    "ANTHROPIC_AUTH_TOKEN": "another-token",
}
# What differs by library, and says nothing to the provider about the request.
OWN = ("host", "user-agent", "accept-encoding", "connection", "content-length")
SAID: Any = [{"role": "user", "content": "Hi."}]


def _client(seen: list[httpx2.Request]) -> httpx2.AsyncClient:
    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(404, json={"error": {"message": "no"}})

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


async def _openai(client: httpx2.AsyncClient, **options: Any) -> None:
    sdk = openai.AsyncOpenAI(api_key="a-key", http_client=client, max_retries=0, **options)
    with suppress(openai.APIError):
        await sdk.chat.completions.create(model="m", messages=SAID, stream=True)


async def _responses(client: httpx2.AsyncClient, **options: Any) -> None:
    sdk = openai.AsyncOpenAI(api_key="a-key", http_client=client, max_retries=0, **options)
    with suppress(openai.APIError):
        await sdk.responses.create(model="m", input="Hi.", stream=True)


async def _anthropic(client: httpx2.AsyncClient, **options: Any) -> None:
    sdk = anthropic.AsyncAnthropic(api_key="a-key", http_client=client, max_retries=0, **options)
    with suppress(anthropic.APIError):
        await sdk.messages.create(model="m", messages=SAID, max_tokens=8, stream=True)


def _meaning(request: httpx2.Request) -> tuple[str, dict[str, str]]:
    headers = {name: value for name, value in request.headers.items() if not name.startswith("x-stainless")}
    return str(request.url), {name: value for name, value in headers.items() if name not in OWN}


@pytest.fixture(params=[False, True], ids=["plain", "environment"])
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.delenv(name, raising=False)
        if request.param:
            monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("extra", [{}, {"X-Team": "mine", "Authorization": "Bearer other"}], ids=["", "extra headers"])
@pytest.mark.parametrize(
    ("make", "sdk"),
    [(OpenAIChat, _openai), (OpenAIResponses, _responses), (Anthropic, _anthropic)],
    ids=["openai", "openai-responses", "anthropic"],
)
async def test_the_headers_are_those_of_the_vendors_sdk(
    make: Callable[..., Any], sdk: Callable[..., Any], extra: dict[str, str]
) -> None:
    seen: list[httpx2.Request] = []
    model = make("m", api_key="a-key", http_client=lambda: _client(seen), extra_headers=extra)
    with suppress(ModelError):
        async with model.stream(ModelRequest((UserMessage((Text("Hi."),)),))):
            pass
    await sdk(_client(seen), default_headers=extra)
    ours, theirs = seen
    assert _meaning(ours) == _meaning(theirs)


async def test_other_servers_do_not_get_the_account_at_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    seen: list[httpx2.Request] = []
    model = OpenAIChat("m", server="vllm", http_client=lambda: _client(seen))
    with suppress(ModelError):
        async with model.stream(ModelRequest((UserMessage((Text("Hi."),)),))):
            pass
    (sent,) = seen
    assert not [name for name in sent.headers if name.startswith("openai")]
    assert "an-organization" not in str(sent.headers)
