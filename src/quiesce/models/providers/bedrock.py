"""Amazon Bedrock ConverseStream.

boto3 reads its streams synchronously: a read can neither be cancelled nor awaited. So the request is signed with
botocore, sent with httpx2, and the event stream is decoded with botocore's own parser.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, Unpack

import anyio
import httpx2
import msgspec

from ...errors import AuthenticationFailed, ConfigurationError
from ...messages import (
    AssistantContent,
    Document,
    Image,
    ProviderPart,
    Reasoning,
    ToolCall,
    ToolResult,
    UserContent,
)
from ..base import CachePolicy, ModelRequest, switches_thinking_on
from ..decoders.bedrock_converse import ConverseDecoder
from ..server_tools import ServerTool
from ..wire import convert, schemas
from ..wire.common_settings import bedrock_effort, one_of
from ..wire.encoding import MessageEncoder, encode
from ..wire.extra import extra
from ..wire.http import PlainModel, WireOptions
from ..wire.json_values import as_dict
from ..wire.message_format import MessageBlock, MessageFormat
from ..wire.server_tools import as_body, for_bedrock
from .compatible import vocabulary_of

_INFERENCE: Final = {"temperature": "temperature", "top_p": "topP", "stop_sequences": "stopSequences"}
_FORMATS: Final[Mapping[str, str]] = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/markdown": "md",
}
_MEDIA: Final[Mapping[str, str]] = {"quicktime": "mov", "x-matroska": "mkv", "3gpp": "three_gp", "x-wav": "wav"}
_NO_NAME: Final = re.compile(r"[^a-zA-Z0-9\-()\[\]]+")


class Bedrock(PlainModel):
    """A model on Amazon Bedrock, through ConverseStream.

    api_key   a Bedrock API key; else AWS_BEARER_TOKEN_BEDROCK; else requests are signed with AWS credentials
    region    else AWS_REGION, AWS_DEFAULT_REGION, or the profile's
    profile   the AWS profile whose credentials to use
    cache     put cache points after the tools, the instructions and the conversation

    The rest as for `WireModel`. Raises `MissingExtra` without the package `botocore`, and `ConfigurationError` where
    the region is not known.
    """

    provider = "bedrock"
    label: ClassVar[str] = "Bedrock"
    decoder = ConverseDecoder
    stop_policy = "drain"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        region: str | None = None,
        profile: str | None = None,
        base_url: str | None = None,
        cache: bool = False,
        **options: Unpack[WireOptions],
    ) -> None:
        session = extra("botocore.session", "Bedrock", "bedrock")
        self._session: Final = session.Session(profile=profile)
        self._region: Final = (
            region
            or os.environ.get("AWS_REGION")
            or os.environ.get("AWS_DEFAULT_REGION")
            or _profile_region(self._session)
        )
        if not self._region:
            raise ConfigurationError("Which AWS region is Bedrock in?", todo="Set AWS_REGION or pass region=.")
        self._api_key: Final = api_key or os.environ.get("AWS_BEARER_TOKEN_BEDROCK")
        self._cache: Final = cache
        self._keys: Any = None
        self._messages: Final = MessageEncoder(_FORMAT.items)
        super().__init__(model, api_key=self._api_key, base_url=base_url or _endpoint(self._region), **options)
        self.tokenizer = self.tokenizer or vocabulary_of(re.sub(r"^(us|eu|apac|global|jp|au)\.", "", model))

    async def _send(self, request: ModelRequest) -> httpx2.Response:
        content = encode(self.body(request, encoded=True))
        url = f"{self.base_url}/model/{urllib.parse.quote(self.model, safe='')}/converse-stream"
        return await self._post(url, content, await self._headers(url, content))

    @property
    def supports_prefill(self) -> bool:
        """Whether a request may end in the beginning of the answer: with Claude, up to 4.5."""
        return not switches_thinking_on(self.extra_body) and convert.takes_prefill(self.model)

    async def _headers(self, url: str, content: bytes) -> dict[str, str]:
        headers = {"content-type": "application/json", **self.extra_headers}
        if self._api_key:
            return headers | {"authorization": f"Bearer {self._api_key}"}
        return self._signed(url, content, headers, await self._credentials())

    async def _credentials(self) -> Any:
        """AWS credentials. Finding or renewing them may ask the network, synchronously; a stop does not wait for it."""
        if self._keys is not None:
            return self._keys
        if "AWS_ACCESS_KEY_ID" in os.environ:
            found = self._session.get_credentials()
        else:
            found = await anyio.to_thread.run_sync(self._renewed, abandon_on_cancel=True)
        if found is None:
            raise AuthenticationFailed(
                "There are no AWS credentials.",
                kept="Nothing was sent.",
                todo="Set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile.",
            )
        frozen = found.get_frozen_credentials()
        if not hasattr(found, "refresh_needed"):  # these never change
            self._keys = frozen
        return frozen

    def _renewed(self) -> Any:
        found = self._session.get_credentials()
        if found is not None:
            found.get_frozen_credentials()  # renews what is about to expire, here rather than in the loop
        return found

    def _signed(self, url: str, content: bytes, headers: dict[str, str], keys: Any) -> dict[str, str]:
        auth, awsrequest = (extra(f"botocore.{name}", "Bedrock", "bedrock") for name in ("auth", "awsrequest"))
        request = awsrequest.AWSRequest(method="POST", url=url, data=content, headers=headers)
        auth.SigV4Auth(keys, "bedrock", self._region).add_auth(request)
        return dict(request.headers.items())

    def server_tools(self, tools: Iterable[ServerTool]) -> dict[str, Any]:
        """What a request carries for these. Raises `ConfigurationError` for those that there are none of."""
        asked = as_body(for_bedrock(tools, self.model))
        return {"toolConfig": asked} if asked else {}

    def body(self, request: ModelRequest, *, encoded: bool = False) -> dict[str, Any]:
        """The request as the API wants it."""
        settings, limit = convert.settings_of(request)
        wanted_cache: CachePolicy | None = settings.pop("cache", request.cache)
        cache: CachePolicy = self._cache if wanted_cache is None else wanted_cache
        inference = convert.renamed(settings, _INFERENCE)
        if limit is not None:
            inference["maxTokens"] = limit
        body: dict[str, Any] = {
            "messages": self._messages.items(request.messages, encoded=encoded, open_end=bool(cache))
        }
        if inference:
            body["inferenceConfig"] = inference
        made = schemas.for_output(request.output_schema or {}, schemas.ANTHROPIC)
        instructions = request.instructions
        if made is not None:
            wanted = {"jsonSchema": {"name": "answer", "schema": msgspec.json.encode(made).decode()}}
            body["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": wanted}}
        elif request.output_schema is not None:
            instructions = schemas.in_words(instructions, request.output_schema)
        if instructions:
            body["system"] = [{"text": instructions}]
        tools = list(_tools(request, self._messages.called(request.messages)))
        if tools:
            tool_config: dict[str, Any] = {"tools": tools}
            body["toolConfig"] = tool_config
        choice = convert.tool_choice(request, "Bedrock")
        if choice == "none":
            raise convert.no_tool_choice("Bedrock", choice)
        if choice is not None:
            kinds: dict[str, dict[str, Any]] = {"auto": {"auto": {}}, "required": {"any": {}}}
            body["toolConfig"]["toolChoice"] = kinds.get(choice) or {"tool": {"name": choice}}
        if cache:
            for blocks in (tools, body.get("system"), body["messages"][-1]["content"]):
                if blocks:
                    blocks.append({"cachePoint": {"type": "default"} | ({} if cache is True else {"ttl": cache})})
        tier = one_of(settings, "service_tier", "Bedrock", ("default", "flex", "priority", "reserved"))
        one_of(settings, "top_logprobs", "Bedrock", ())
        asked = bedrock_effort(settings, self.model) | ({"serviceTier": {"type": tier}} if tier else {})
        server_tools = self.server_tools(request.server_tools)
        return _with_room(convert.merged(body, server_tools, asked, settings, self.extra_body))


def _with_room(body: dict[str, Any]) -> dict[str, Any]:
    """The body, with a limit on the answer that exceeds the budget for thinking."""
    fields = as_dict(body.get("additionalModelRequestFields"))
    budget = as_dict(fields.get("thinking") or fields.get("reasoning_config")).get("budget_tokens")
    limits = as_dict(body.get("inferenceConfig"))
    if isinstance(budget, int) and budget >= limits.get("maxTokens", budget + 1):
        limits["maxTokens"] += budget
    return body


def _endpoint(region: str) -> str:
    """Where the service is: by the variables that AWS's SDKs read, or at its usual place."""
    named = (os.environ.get(name) for name in ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "AWS_ENDPOINT_URL"))
    return next(
        (address.rstrip("/") for address in named if address), f"https://bedrock-runtime.{region}.amazonaws.com"
    )


def _profile_region(session: Any) -> str | None:
    from botocore.exceptions import BotoCoreError

    try:
        return session.get_config_variable("region")
    except BotoCoreError as error:
        raise ConfigurationError(f"The AWS profile cannot be read: {error}.", todo="Check ~/.aws/config.") from None


# --- The conversation ----------------------------------------------------------------------------------------------


def _tools(request: ModelRequest, called: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The tools of the request, and those that the conversation used: calls are refused unless their tool is there."""
    offered: set[str] = set()
    for tool in request.tools:
        offered.add(tool.name)
        yield _tool(tool.name, tool.description, schemas.for_tool(tool.schema))
    for name in called:
        if name not in offered:
            offered.add(name)
            yield _tool(name, "No longer available.", {"type": "object", "properties": {}})


def _tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"toolSpec": {"name": name, "description": description, "inputSchema": {"json": schema}}}


def _is_open_server_call(block: MessageBlock, answered: set[Any]) -> bool:
    use = block.get("toolUse", {})
    return use.get("type") == "server_tool_use" and use.get("toolUseId") not in answered


class _BedrockFormat(MessageFormat):
    provider = "bedrock"

    def user_blocks(self, content: Iterable[UserContent]) -> list[MessageBlock]:
        parts = super().user_blocks(content)
        # A document is refused without words beside it.
        return parts if any("text" in part for part in parts) else [*parts, self.text(convert.SEE_ATTACHMENT)]

    def text(self, text: str) -> MessageBlock:
        return {"text": text}

    def image(self, part: Image) -> MessageBlock:
        source = {"bytes": convert.base64_of(convert.bytes_of(part, "Bedrock", "image"))}
        return {"image": {"format": convert.media_type_of(part).rpartition("/")[2], "source": source}}

    def document(self, part: Document) -> MessageBlock:
        source = {"bytes": convert.base64_of(convert.bytes_of(part, "Bedrock", "document"))}
        kind, _, subtype = part.media_type.partition("/")
        if kind in ("audio", "video"):
            return {kind: {"format": _MEDIA.get(subtype, subtype), "source": source}}
        name = " ".join(_NO_NAME.sub(" ", part.name or "document").split()) or "document"
        return {"document": {"format": _FORMATS.get(part.media_type, "txt"), "name": name, "source": source}}

    def call(self, call: ToolCall) -> MessageBlock:
        return {"toolUse": {"toolUseId": call.id, "name": call.name, "input": call.arguments}}

    def reasoning(self, part: Reasoning) -> MessageBlock:
        if convert.is_redacted(part):
            return {"reasoningContent": {"redactedContent": part.signature}}
        return {"reasoningContent": {"reasoningText": {"text": part.text, "signature": part.signature}}}

    def assistant_blocks(self, content: Iterable[AssistantContent]) -> list[MessageBlock]:
        """The blocks; a server tool that a stop cut is left out, because a call without its result is refused."""
        blocks = super().assistant_blocks(content)
        answered = {block["toolResult"].get("toolUseId") for block in blocks if "toolResult" in block}
        return [block for block in blocks if not _is_open_server_call(block, answered)]

    def add_provider_part(self, part: ProviderPart, blocks: list[MessageBlock]) -> None:
        """Citations have no place in a request."""
        if part.kind != "citations":
            blocks.append(dict(part.data))

    def result(self, result: ToolResult) -> Iterator[MessageBlock]:
        answer = {"toolUseId": result.call_id, "content": [self.part(part) for part in result.content]}
        yield {"toolResult": answer | {"status": "error"} if result.is_error else answer}


_FORMAT: Final = _BedrockFormat()
