"""What goes wrong on the way to a provider comes out as one typed error each, and no secret with it."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import traceback
from email.utils import formatdate
from time import time

import httpx2
import pytest
import trustme

from quiesce import Agent, Retry
from quiesce.conversation.validity import faults
from quiesce.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    ContextTooLong,
    ModelError,
    ModelNotFound,
    ModelTimeout,
    Overloaded,
    ProxyFailed,
    QuotaExceeded,
    RateLimited,
    RequestRejected,
    RunError,
    ServerError,
    TLSFailed,
)
from quiesce.models.base import Model
from quiesce.models.wire.failures import Failures

from .recordings import ANSWER, KEY, OPENAI_CHAT, PROVIDERS, Provider
from .recordings.source import Source, quoted, recorded, thread
from .recordings.sources import CLAUDE_SPEND_LIMIT, OPENROUTER_ERRORS, TOO_LONG
from .wire import Play, refused, wire

pytestmark = pytest.mark.promise("P7")
each_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=str)
EXPECTED: dict[str, type[ModelError]] = {
    "rejected": RequestRejected,
    "too_long": ContextTooLong,
    "key": AuthenticationFailed,
    "model": ModelNotFound,
    "rate": RateLimited,
    "quota": QuotaExceeded,
    "server": ServerError,
    "overloaded": Overloaded,
}


async def failure_of(model: Model) -> ModelError:
    agent = Agent(model, retry=Retry(attempts=1))
    with pytest.raises(RunError) as caught:
        await agent.invoke_async("Hello?")
    assert isinstance(caught.value, ModelError)
    assert not faults(agent.messages)
    assert len(agent.usage.entries) == 1
    assert agent.usage.entries[0].ended == "failed"
    shown = "".join(traceback.format_exception(caught.value)) + repr(model) + repr(agent.messages) + repr(caught.value)
    assert KEY not in shown
    return caught.value


@pytest.mark.parametrize(
    ("provider", "kind"), [(provider, kind) for provider in PROVIDERS for kind in provider.errors], ids=str
)
@pytest.mark.promise("P6")
def test_each_error_has_its_type(provider: Provider, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        async with wire(provider.errors[kind], provider.answer.response) as server:
            model = provider.make(server.url)
            error = await failure_of(model)
            assert type(error) is EXPECTED[kind]
            assert error.todo
            assert error.retry_after == (7 if kind == "rate" else None)
            assert error.retryable == (kind in ("rate", "server", "overloaded"))
            assert (await Agent(model).invoke_async("Again.")).text == ANSWER
            assert server.connections == 1  # an error is an answer like any other: the connection is used again

    asyncio.run(main())
    assert KEY not in caplog.text


UNUSUAL: list[tuple[str, int, object, type[ModelError], Source]] = [
    ("ollama cloud", 401, "unauthorized", AuthenticationFailed, thread("continuedev/continue/issues/10022")),
    ("ollama cloud", 400, {"error": "unauthorized"}, AuthenticationFailed, recorded("In the middle of a stream.")),
    (
        "xai",
        400,
        {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: na***ys."},
        AuthenticationFailed,
        thread("continuedev/continue/issues/10778", "The code: https://github.com/nocmt/LLMSearchPlus/issues/2"),
    ),
    (
        "openrouter",
        403,
        {
            "error": {
                "code": 403,
                "message": "Your chosen model requires moderation and your input was flagged",
                "metadata": {"reasons": ["violence"], "flagged_input": "...", "provider_name": "OpenAI"},
            }
        },
        RequestRejected,
        OPENROUTER_ERRORS,
    ),
    (
        "nova",
        400,
        {"message": "Input Tokens Exceeded: Number of input tokens exceeds maximum length."},
        ContextTooLong,
        quoted("Programs that recognise it; Amazon does not document it."),
    ),
    *(
        (
            "perplexity",
            400,
            {"error": {"message": "Requested 115120 to generate tokens, and no more.", "type": kind, "code": 400}},
            ContextTooLong,
            source,
        )
        for kind, source in (
            ("requested_too_many_tokens", thread("OpenRouterTeam/ai-sdk-provider/issues/121")),
            ("too_many_prompt_tokens", recorded("Beside the other one.")),
        )
    ),
    *(
        (server, 400, {"error": {"message": message}}, ContextTooLong, TOO_LONG)
        for server, message in (
            ("xai", "This model's maximum prompt length is 131072 but the request contains 140000 tokens."),
            ("groq", "Please reduce the length of the messages or completion."),
            ("github", "prompt token count of 140000 exceeds the limit of 128000"),
            ("moonshot", "Your request exceeded model token limit: 262144 (requested: 300000)"),
            ("mistral", "Prompt contains 140000 tokens, too large for model with 131072 maximum context length"),
            ("llama.cpp", "the request exceeds the available context size, try increasing it"),
            ("openai", "Your input exceeds the context window of this model."),
        )
    ),
    (
        "anthropic",
        429,
        {
            "type": "error",
            "error": {
                "type": "rate_limit_error",
                "message": "Your organization has reached its monthly limit.",
                "details": {"error_code": "enforced_spend_limit_reached"},
            },
        },
        QuotaExceeded,
        CLAUDE_SPEND_LIMIT,
    ),
]


@pytest.mark.parametrize(("server", "status", "body", "kind"), [each[:4] for each in UNUSUAL], ids=str)
def test_errors_that_say_what_they_are_in_another_way(
    server: str, status: int, body: object, kind: type[ModelError]
) -> None:
    response = httpx2.Response(status, json=body)
    assert type(Failures(server).of_response(response)) is kind


@each_provider
@pytest.mark.promise("P1", "P6")
def test_an_overloaded_provider_is_asked_again(provider: Provider) -> None:
    async def main() -> None:
        async with wire(provider.errors["overloaded"], provider.errors["server"], provider.answer.response) as server:
            agent = Agent(provider.make(server.url), retry=Retry(attempts=3, first=0.001))
            result = await agent.invoke_async("Hello?")
            assert result.text == ANSWER
            assert [entry.ended for entry in result.usage.entries] == ["failed", "failed", "completed"]
            # The SDKs do not try again on their own, behind the run's back.
            assert len(server.requests) == 3

    asyncio.run(main())


@each_provider
@pytest.mark.promise("P1")
@pytest.mark.case("strands#4250")
def test_a_stop_ends_the_wait_that_a_provider_asked_for(provider: Provider) -> None:
    async def main() -> None:
        async with wire(provider.errors["rate"]) as server:
            agent = Agent(provider.make(server.url))
            run = agent.start("Hello?")
            scheduled = asyncio.Event()
            run.tap(lambda event: scheduled.set() if type(event).__name__ == "RetryScheduled" else None)
            await scheduled.wait()
            run.cancel()
            async with asyncio.timeout(3):  # and not the seven seconds of the Retry-After
                receipt = await run.stopped()
            assert receipt.stop_reason == "cancelled"

    asyncio.run(main())


@each_provider
def test_nobody_there(provider: Provider) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = asyncio.run(failure_of(provider.make(f"http://127.0.0.1:{port}")))
    assert type(error) is ConnectionFailed
    assert f"127.0.0.1:{port}" in str(error)


@each_provider
def test_a_host_that_does_not_exist(provider: Provider) -> None:
    error = asyncio.run(failure_of(provider.make("http://no-such-host.invalid")))
    assert type(error) is ConnectionFailed


@each_provider
def test_no_address_at_all(provider: Provider) -> None:
    error = asyncio.run(failure_of(provider.make("ftp://somewhere")))
    assert isinstance(error, ModelError)
    assert not error.retryable


@each_provider
def test_a_certificate_that_nobody_vouches_for(provider: Provider) -> None:
    async def main() -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
        async with wire(ssl=context) as server:
            error = await failure_of(provider.make(f"https://127.0.0.1:{server.port}"))
            assert type(error) is TLSFailed
            assert "certificate" in str(error)

    asyncio.run(main())


@each_provider
def test_a_certificate_that_somebody_vouches_for(provider: Provider) -> None:
    async def main() -> None:
        authority = trustme.CA()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
        async with wire(provider.answer.response, Play(then="stall"), ssl=context) as server:
            model = provider.make(
                f"https://127.0.0.1:{server.port}", http_client=lambda: httpx2.AsyncClient(verify=trusting)
            )
            agent = Agent(model, stop_policy="hang_up")  # a drain would read on until its cap
            assert (await agent.invoke_async("Hello?")).text == ANSWER
            run = agent.start("And?")
            await server.waiting.wait()
            run.cancel()
            await run.stopped()
            await server.all_gone()

    asyncio.run(main())


@each_provider
def test_a_proxy_that_refuses(provider: Provider) -> None:
    async def main() -> None:
        denied = b"HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n"
        async with wire(denied) as proxy:
            address = f"http://user:{KEY}@127.0.0.1:{proxy.port}"
            model = provider.make("https://provider.invalid", http_client=lambda: httpx2.AsyncClient(proxy=address))
            assert type(await failure_of(model)) is ProxyFailed

    asyncio.run(main())


@each_provider
def test_a_proxy_that_is_not_there(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    error = asyncio.run(failure_of(provider.make("https://provider.invalid")))
    assert type(error) is ProxyFailed


@each_provider
def test_a_server_that_says_nothing(provider: Provider) -> None:
    async def main() -> None:
        async with wire(Play(then="stall")) as server:
            assert type(await failure_of(provider.make(server.url, timeout=0.05))) is ModelTimeout
            await server.all_gone()

    asyncio.run(main())


@each_provider
def test_a_server_that_hangs_up_first(provider: Provider) -> None:
    async def main() -> None:
        async with wire(Play(then="close"), Play(then="reset")) as server:
            assert type(await failure_of(provider.make(server.url))) is ConnectionFailed
            assert type(await failure_of(provider.make(server.url))) is ConnectionFailed

    asyncio.run(main())


@each_provider
def test_a_redirect_does_not_take_the_key_along(provider: Provider) -> None:
    async def main() -> None:
        async with wire() as elsewhere, wire() as server:
            server.play(refused(307, b"", {"location": f"{elsewhere.url}/v1"}))
            error = await failure_of(provider.make(server.url))
            assert type(error) is RequestRejected
            assert elsewhere.url in str(error)
            assert not elsewhere.requests

    asyncio.run(main())


def test_an_error_page_that_is_no_json() -> None:
    async def main() -> None:
        page = b"<html><body>502 Bad Gateway</body></html>"
        async with wire(refused(502, page)) as server:
            error = await failure_of(OPENAI_CHAT.make(server.url))
            assert type(error) is ServerError
            assert "502" in str(error)

    asyncio.run(main())


def test_a_date_in_retry_after() -> None:
    async def main() -> None:
        soon = formatdate(time() + 60, usegmt=True)
        async with wire(refused(429, {"error": "slow down"}, {"retry-after": soon})) as server:
            error = await failure_of(OPENAI_CHAT.make(server.url))
            assert error.retry_after is not None
            assert 30 < error.retry_after <= 60

    asyncio.run(main())


@pytest.mark.parametrize("date", ["soon", "Thu, 01 Jan 2026 00:00:00 +99999999999999999999"])
def test_a_date_in_retry_after_that_is_none(date: str) -> None:
    response = httpx2.Response(429, headers={"retry-after": date}, json={"error": "slow down"})
    error = Failures("X").of_response(response)
    assert (type(error), error.retry_after) == (RateLimited, None)


@pytest.mark.parametrize(
    "text",
    [
        f"Incorrect key {KEY}.",
        "Incorrect API key provided: sk-proj-********************Wxyz.",
        "header Authorization: Bearer abcdef0123456789",
        "proxy http://user:hunter2hunter2@proxy.example:8080 failed",
        "AIzaSyA0123456789abcdefghijk was not accepted",
        "a header of mine: letmein-letmein",
    ],
)
def test_secrets_are_taken_out(text: str) -> None:
    clean = Failures("X", secrets=[KEY, "letmein-letmein"]).clean(text)
    assert "***" in clean
    for secret in (KEY, "Wxyz", "abcdef0123456789", "hunter2", "AIzaSy", "letmein"):
        assert secret not in clean
