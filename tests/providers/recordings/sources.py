"""The sources that several recordings share.

Types of client libraries are the best of them: vendors generate them from what their servers send, and a test can read
them. An old page of documentation may have moved since its copy was stored.
"""

from __future__ import annotations

from .source import Source, code, package, page, thread

# --- OpenAI --------------------------------------------------------------------------------------------------------

_OPENAI = "openai 3.49.0: openai"
CHAT_CHUNK = package(
    f"{_OPENAI}/types/chat/chat_completion_chunk.py",
    "delta: ChoiceDelta",
    "tool_calls: Optional[List[ChoiceDeltaToolCall]]",
    "refusal: Optional[str]",
    '"content_filter"',
    "logprobs: Optional[ChoiceLogprobs]",
    "class ChoiceDeltaAudio",
    "usage: Optional[CompletionUsage]",
)
RESPONSES_TEXT = package(
    f"{_OPENAI}/types/responses/response_text_delta_event.py", 'Literal["response.output_text.delta"]'
)
RESPONSES_CALL = package(
    f"{_OPENAI}/types/responses/response_function_call_arguments_delta_event.py",
    'Literal["response.function_call_arguments.delta"]',
)
RESPONSES_REASONING = package(
    f"{_OPENAI}/types/responses/response_reasoning_item.py", 'Literal["reasoning"]', "encrypted_content"
)
RESPONSES_ERROR = package(f"{_OPENAI}/types/responses/response_error_event.py", 'Literal["error"]', "sequence_number")
RESPONSES_INCOMPLETE = package(
    f"{_OPENAI}/types/responses/response.py", '"max_output_tokens"', '"max_messages"', '"content_filter"'
)
RESPONSES_INPUT = package(
    f"{_OPENAI}/types/responses/response_input_item_param.py",
    'Literal["tool_search_call"]',
    'Literal["image_generation_call"]',
    'Literal["local_shell_call"]',
    'Literal["local_shell_call_output"]',
    'Literal["shell_call"]',
    'Literal["shell_call_output"]',
    'Literal["apply_patch_call"]',
    'Literal["apply_patch_call_output"]',
    'Literal["mcp_approval_request"]',
    'Literal["mcp_approval_response"]',
)
RESPONSES_CUSTOM = package(
    f"{_OPENAI}/types/responses/response_custom_tool_call_param.py", 'Literal["custom_tool_call"]'
)
_OPENAI_ERRORS = page(
    "https://community.openai.com/t/error-code-500-and-health-check/696299/1",
    "It quotes the guide to error codes: statuses and messages. The values of `code` are not in it.",
)
_OPENAI_STATUSES = package(
    f"{_OPENAI}/_exceptions.py", "Literal[400]", "Literal[404]", "Literal[429]", note="Statuses, not messages."
)
_OPENAI_ERROR_KINDS = page(
    "https://www.developersdigest.tech/errors/api/openai-api",
    "`insufficient_quota`, `invalid_request_error` and `service_unavailable_error`; a code tells more than the type.",
)

# --- Anthropic -----------------------------------------------------------------------------------------------------

_ANTHROPIC = "anthropic 2.8.0: anthropic"
CLAUDE_TEXT = package(f"{_ANTHROPIC}/types/text_delta.py", 'Literal["text_delta"]')
CLAUDE_CALL = package(f"{_ANTHROPIC}/types/input_json_delta.py", 'Literal["input_json_delta"]', "partial_json")
CLAUDE_THINKING = package(f"{_ANTHROPIC}/types/signature_delta.py", 'Literal["signature_delta"]')
CLAUDE_REFUSAL = page(
    "https://platform.claude.com/docs/test-and-evaluate/strengthen-guardrails/handle-streaming-refusals"
)
CLAUDE_SERVER_TOOLS = page("https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools.md")
CLAUDE_ERRORS = page("https://docs.claude.com/en/api/errors")
CLAUDE_OVERLOADED = package(f"{_ANTHROPIC}/_exceptions.py", "Literal[529]")
CLAUDE_SPEND_LIMIT = package(
    f"{_ANTHROPIC}/types/shared/enforced_spend_limit_reached_error.py", "RateLimitError", "enforced_spend_limit_reached"
)

# --- Bedrock -------------------------------------------------------------------------------------------------------

BEDROCK_API = package(
    "botocore 1.44.0: botocore/data/bedrock-runtime/2023-09-30/service-2.json.gz",
    '"messageStop"',
    '"contentBlockDelta"',
    '"reasoningContent"',
    '"cacheReadInputTokens"',
    '"server_tool_use"',
    '"ToolResultBlockStart"',
    '"ImageBlockDelta"',
    '"guardrail_intervened"',
    '"content_filtered"',
    '"malformed_model_output"',
    '"malformed_tool_use"',
)
BEDROCK_ERRORS = package(
    "botocore 1.44.0: botocore/data/bedrock-runtime/2023-09-30/service-2.json.gz",
    '"ThrottlingException"',
    '"ValidationException"',
    '"AccessDeniedException"',
    '"ServiceQuotaExceededException"',
    '"InternalServerException"',
    '"ServiceUnavailableException"',
    note="Names and statuses, not messages.",
)

# --- Gemini --------------------------------------------------------------------------------------------------------

_GENAI = "google-genai 3.3.0: google/genai"
GEMINI_TYPES = package(
    f"{_GENAI}/types.py",
    "class GenerateContentResponseUsageMetadata",
    "class FunctionCall(",
    "partial_args",
    "will_continue",
    "thought_signature",
    "executable_code",
    "code_execution_result",
    "inline_data",
    "grounding_metadata",
    "block_reason",
)
GEMINI_FINISH = package(
    f"{_GENAI}/types.py",
    "SAFETY = 'SAFETY'",
    "MODEL_ARMOR = 'MODEL_ARMOR'",
    "PROHIBITED_CONTENT = 'PROHIBITED_CONTENT'",
    "ESCALATION = 'ESCALATION'",
    "PUP_LIMITED_DISABLED = 'PUP_LIMITED_DISABLED'",
    "CONTINUATION = 'CONTINUATION'",
    "MALFORMED_FUNCTION_CALL = 'MALFORMED_FUNCTION_CALL'",
    "finish_message",
)
GEMINI_ERROR_SHAPE = package(
    f"{_GENAI}/errors.py", "response_json.get('error', {}).get('status', None)", note="The shape, not the messages."
)
GEMINI_QUOTA = thread("google-gemini/gemini-cli/issues/2020", "429 and RESOURCE_EXHAUSTED; `RetryInfo` is not in it.")
GEMINI_OVERLOADED = thread("google-gemini/gemini-cli/issues/8548", "That the model is overloaded; not the whole body.")

# --- Others --------------------------------------------------------------------------------------------------------

OLLAMA_TYPES = package(
    "ollama 0.6.3: ollama/_types.py", "done_reason", "prompt_eval_count", "eval_count", "thinking: Optional[str]"
)
OPENROUTER_STREAM = page("https://openrouter.ai/docs/api-reference/streaming")
OPENROUTER_ERRORS = page("https://openrouter.ai/docs/api/reference/errors-and-debugging")
TOO_LONG = code(
    "badlogic/pi-mono: packages/ai/src/utils/overflow.ts", "How each vendor words that a prompt is too long."
)
OPENAI_ERROR_SOURCES: dict[str, Source] = {
    "rejected": _OPENAI_STATUSES,
    "too_long": TOO_LONG,
    "key": _OPENAI_ERRORS,
    "model": _OPENAI_STATUSES,
    "rate": _OPENAI_ERRORS,
    "quota": _OPENAI_ERROR_KINDS,
    "server": _OPENAI_ERRORS,
    "overloaded": _OPENAI_ERROR_KINDS,
}
