"""From what went wrong on the way to a provider to one typed error, with no secret in it."""

from __future__ import annotations

import email.utils
import re
import ssl
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import httpx2
import msgspec

from ... import errors
from .json_values import as_dict, as_list

# What providers call their errors, where the status alone would not tell.
_KINDS: Final[Mapping[type[errors.ModelError], str]] = {
    errors.QuotaExceeded: (
        "insufficient_quota billing_hard_limit_reached billing_not_active billing_error servicequotaexceededexception "
        "enforced_spend_limit_reached"
    ),
    errors.ContextTooLong: (
        "context_length_exceeded exceed_context_size_error too_many_prompt_tokens requested_too_many_tokens"
    ),
    errors.ModelNotFound: "model_not_found not_found_error not_found resourcenotfoundexception",
    errors.AuthenticationFailed: (
        "invalid_api_key authentication_error permission_error unauthenticated permission_denied accessdeniedexception "
        "unrecognizedclientexception invalidsignatureexception missingauthenticationtokenexception "
        "expiredtokenexception"
    ),
    errors.RateLimited: "rate_limit_error rate_limit_exceeded resource_exhausted throttlingexception",
    errors.Overloaded: "overloaded_error unavailable serviceunavailableexception modelnotreadyexception",
    errors.ModelTimeout: "timeout_error deadline_exceeded modeltimeoutexception",
    errors.ServerError: (
        "api_error server_error internal internalserverexception modelstreamerrorexception modelerrorexception"
    ),
}
_BY_KIND: Final = {kind: which for which, kinds in _KINDS.items() for kind in kinds.split()}
_BY_STATUS: Final[Mapping[int, type[errors.ModelError]]] = {
    401: errors.AuthenticationFailed,
    402: errors.QuotaExceeded,
    403: errors.AuthenticationFailed,
    404: errors.ModelNotFound,
    407: errors.ProxyFailed,
    408: errors.ModelTimeout,
    425: errors.RateLimited,
    429: errors.RateLimited,
    503: errors.Overloaded,
    504: errors.ModelTimeout,
    529: errors.Overloaded,
}
_BY_WORDS: Final[tuple[tuple[re.Pattern[str], type[errors.ModelError]], ...]] = (
    (
        re.compile(
            r"context (length|window|size)|prompt is too long|input is too long|too many (input |prompt )?tokens"
            r"|maximum (number of )?tokens|exceeds the (maximum|available) (number of )?(tokens|context)"
            r"|input tokens exceed|maximum prompt length|max(imum)? tokens of \d+ exceeded"
            r"|reduce the length of the messages|prompt token count of \d+ exceeds|exceeded model token limit",
            re.IGNORECASE,
        ),
        errors.ContextTooLong,
    ),
    (
        re.compile(
            r"api[ _]key[ _](not[ _]valid|invalid|expired)|(incorrect|invalid) api key|\bunauthori[sz]ed\b",
            re.IGNORECASE,
        ),
        errors.AuthenticationFailed,
    ),
    (re.compile(r"\bflagged\b|\bmoderation\b", re.IGNORECASE), errors.RequestRejected),
    (re.compile(r"credit balance|insufficient (balance|credits|funds|quota)", re.IGNORECASE), errors.QuotaExceeded),
    (
        re.compile(
            r"model identifier is invalid|model .{0,80}(not found|does not exist|not exist)|(unknown|invalid) model",
            re.IGNORECASE,
        ),
        errors.ModelNotFound,
    ),
)
_SHAPES_OF_SECRETS: Final = re.compile(
    r"(?:\b(?:sk|pk|rk|gsk|xai|hf|r8|nvapi|tgp|ABSK|AKIA|ASIA|AIza|ya29)[-_.A-Za-z0-9*/+=]{8,})"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|(?<=[Bb]earer )[^\s\"']{8,}"
)
_SECRET_HEADERS: Final = re.compile(r"auth|key|token|secret|cookie|password|credential", re.IGNORECASE)
_REQUEST_ID_HEADERS: Final = ("x-generation-id", "x-request-id", "request-id", "x-amzn-requestid", "apim-request-id")
_LONGEST_MESSAGE: Final = 600


class Failures:
    """Makes the errors of one model: with the provider's name, and without its secrets."""

    def __init__(self, label: str, *, secrets: Iterable[str | None] = (), url: str = "") -> None:
        self.label: Final = label
        self._secrets: Final = sorted({each for each in secrets if each and len(each) >= 4}, key=len, reverse=True)
        self._url: Final = url

    def clean(self, text: str) -> str:
        """The text without secrets, on one line, and not too long."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = " ".join(_SHAPES_OF_SECRETS.sub("***", text).split())
        return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}..."

    def of(self, error: BaseException) -> errors.ModelError:
        """The typed error for anything that sending a request or reading its answer may raise."""
        if isinstance(error, errors.ModelError):
            return error
        if isinstance(error, errors.ConfigurationError):
            return errors.RequestRejected(error.what, kept="Nothing was sent.", todo=error.todo)
        response = getattr(error, "response", None)
        if isinstance(response, httpx2.Response) and not response.is_success:
            return self.of_response(response)
        # Clients of the user's own may wrap what the transport raised.
        for each in _chain(error):
            if isinstance(each, httpx2.TransportError | httpx2.InvalidURL | httpx2.StreamError | httpx2.DecodingError):
                return self._of_transport(each)
        return errors.ModelError(self.clean(f"{self.label}: {type(error).__name__}: {error}."))

    def of_response(self, response: httpx2.Response) -> errors.ModelError:
        """The typed error for an answer that is an error. Its body has been read."""
        if response.is_redirect:
            where = self.clean(response.headers.get("location", "another address"))
            what = f"{self.label} answered {response.status_code}: it is at {where}."
            return errors.RequestRejected(
                what, todo="Redirects are not followed, to keep the key safe: check the base_url."
            )
        kind, message, retry_after, _ = _read_body(response.content)
        kind = response.headers.get("x-amzn-errortype", "").partition(":")[0] or kind
        return self.reported(
            kind,
            message or response.reason_phrase or "no explanation",
            status=response.status_code,
            retry_after=_retry_after(response.headers) or retry_after,
            request_id=request_id_of(response.headers),
        )

    def of_error_object(self, error: Any, *, request_id: str | None = None) -> errors.ModelError:
        """The typed error for an error object in the middle of a stream."""
        kind, message, wait, status = read_error(error)
        return self.reported(kind, message or "no explanation", status=status, retry_after=wait, request_id=request_id)

    def reported(
        self,
        kind: str,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> errors.ModelError:
        """The typed error for what a provider reports, by status or in the middle of a stream."""
        which = _class_of(kind, message, status)
        answered = f"{self.label} answered {status}" if status else f"{self.label} reported an error"
        named = f" ({kind})" if kind and kind not in message else ""
        what = self.clean(f"{answered}{named}: {message.rstrip('.')}.")
        todo = "Check the model's name and the base_url." if which is errors.ModelNotFound else ""
        return which(what, todo=todo, retry_after=retry_after, request_id=request_id)

    def _of_transport(self, error: Exception) -> errors.ModelError:
        certificate = next((each for each in _chain(error) if isinstance(each, ssl.SSLError)), None)
        reason = self.clean(str(error) or type(error).__name__).rstrip(".")
        host = urllib.parse.urlsplit(self._url).netloc.rpartition("@")[2] or self.label
        match error:
            case httpx2.ConnectTimeout():
                return errors.ModelTimeout(f"{host} did not take the connection in time.")
            case httpx2.TimeoutException():
                return errors.ModelTimeout(f"{self.label} did not answer in the time allowed.")
            case httpx2.ProxyError():
                return errors.ProxyFailed(f"The proxy on the way to {host} failed: {reason}.")
            case httpx2.ConnectError() if certificate is not None:
                return errors.TLSFailed(f"No secure connection to {host}: {self.clean(str(certificate)).rstrip('.')}.")
            case httpx2.ConnectError() if _proxy_for(self._url):
                return errors.ProxyFailed(f"{host} could not be reached through the proxy: {reason}.")
            case httpx2.ConnectError():
                return errors.ConnectionFailed(f"{host} could not be reached: {reason}.")
            case httpx2.UnsupportedProtocol() | httpx2.InvalidURL():
                return errors.RequestRejected(
                    f"{self.clean(self._url)!r} is no address: {reason}.", todo="Check the base_url."
                )
            case httpx2.LocalProtocolError():
                return errors.RequestRejected(
                    f"The request cannot be sent: {reason}.", todo="Check the API key and the extra headers."
                )
            case httpx2.DecodingError():
                return errors.ModelProtocolError(
                    f"The answer of {self.label} is compressed in a way that cannot be read."
                )
            case _:
                return errors.ConnectionFailed(f"The connection to {host} was lost: {reason}.")


def secrets_of(api_key: object, headers: Mapping[str, str] | None) -> list[str]:
    """The values that must never be seen: the key, and the headers that carry one."""
    found = [api_key] if isinstance(api_key, str) else []
    for name, value in (headers or {}).items():
        if _SECRET_HEADERS.search(name):
            found += [value, value.rpartition(" ")[2]]
    return found


def request_id_of(headers: httpx2.Headers) -> str | None:
    """The id that the provider gave to a request."""
    return next((headers[name] for name in _REQUEST_ID_HEADERS if name in headers), None)


def _class_of(kind: str, message: str, status: int | None) -> type[errors.ModelError]:
    by_status = _BY_STATUS.get(status or 0)
    by_kind = _BY_KIND.get(kind.lower())
    if by_status in (errors.RateLimited, errors.Overloaded, errors.ProxyFailed) and by_kind in (
        None,
        errors.ServerError,
    ):
        return by_status  # says more than a kind that means "our fault"
    if by_kind is not None and by_kind is not errors.ModelNotFound:
        return by_kind
    for words, which in _BY_WORDS:
        if words.search(message) and (status is None or status < 500):
            return which
    if by_kind or by_status:
        return by_kind or by_status or errors.ModelError
    if status is None or status >= 500:
        return errors.ServerError
    return errors.RequestRejected


def _read_body(body: bytes) -> tuple[str, str, float | None, int | None]:
    """Kind, message and retry delay from the body of an error of any provider."""
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "", body[:_LONGEST_MESSAGE].decode("utf-8", "replace"), None, None
    return read_error(found)


def no_key(label: str, variable: str) -> errors.AuthenticationFailed:
    """The error for a provider that wants a key, when there is none."""
    return errors.AuthenticationFailed(
        f"There is no key for {label}.", kept="Nothing was sent.", todo=f"Set {variable} or pass api_key=."
    )


def read_error(found: Any) -> tuple[str, str, float | None, int | None]:
    """Kind, message, retry delay and, where its code is a number, HTTP status from an error object."""
    found = next(iter(as_list(found)), found)
    found = as_dict(found).get("error", found)
    body = as_dict(found)
    if not body:
        return "", str(found), None, None
    message: Any = body.get("message") or body.get("Message") or body.get("detail") or body.get("msg") or ""
    # Anthropic says with the same type, and only in the details, that a limit is one of the month.
    names = (as_dict(body.get("details")).get("error_code"), *map(body.get, ("code", "status", "type", "__type")))
    named = [name for name in names if isinstance(name, str) and name]
    kind = next((name for name in named if name.lower() in _BY_KIND), named[0] if named else "")
    code = next((body[name] for name in ("code", "status") if isinstance(body.get(name), int | str)), None)
    status = int(code) if code is not None and re.fullmatch(r"[45]\d\d", str(code)) else None
    kind = "" if kind == str(status) else kind
    return kind, message if isinstance(message, str) else str(message), _retry_info(body.get("details")), status


def _retry_info(details: Any) -> float | None:
    """Google says how long to wait in the body: `{"@type": ".../RetryInfo", "retryDelay": "34s"}`."""
    for detail in as_list(details):
        delay = as_dict(detail).get("retryDelay")
        if isinstance(delay, str) and re.fullmatch(r"\d+(\.\d+)?s", delay):
            return float(delay[:-1])
    return None


def _retry_after(headers: httpx2.Headers) -> float | None:
    in_milliseconds = headers.get("retry-after-ms", "")
    if re.fullmatch(r"\d+(\.\d+)?", in_milliseconds):
        return float(in_milliseconds) / 1000
    wished = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", wished):
        return float(wished)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(wished).timestamp() - time.time()) if wished else None
    except (ValueError, OverflowError):
        return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _proxy_for(url: str) -> str | None:
    """The proxy that the environment names for an address."""
    parts = urllib.parse.urlsplit(url)
    proxies = urllib.request.getproxies()
    if not parts.hostname or urllib.request.proxy_bypass(parts.hostname):
        return None
    return proxies.get(parts.scheme) or proxies.get("all")
