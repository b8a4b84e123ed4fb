"""Every exception of Quiesce: one tree, one page.

Each error says what happened, what was kept, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # a worker process of a tool does without messages
    from .messages import Message


class StopCause(Protocol):
    """Who or what asked for a stop, and why: a `Cause`."""

    @property
    def source(self) -> str:
        """Who or what asked."""
        ...

    @property
    def reason(self) -> str:
        """Why, in free text."""
        ...


class KeptResult(Protocol):
    """What a failed run has kept: a `RunResult`."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation, which is valid."""
        ...

    @property
    def text(self) -> str:
        """The text of the last answer."""
        ...

    @property
    def receipt(self) -> object:
        """The receipt of the run."""
        ...


class QuiesceError(Exception):
    """The root of the tree. `kept` is what survived; `todo` is what to do next."""

    kept: str = ""
    todo: str = ""

    def __init__(self, what: str, *, kept: str = "", todo: str = "") -> None:
        self.what = what
        self.kept = kept or self.kept
        self.todo = todo or self.todo
        super().__init__(what)

    def __str__(self) -> str:
        return " ".join(part for part in (self.what, self.kept, self.todo) if part)


# --- How the SDK is used -------------------------------------------------------------------------------------------


class ConfigurationError(QuiesceError):
    """An agent, a tool or a limit is described in a way that cannot work. Nothing was started."""

    kept = "Nothing was started."


class UnknownMode(ConfigurationError, ValueError):
    """A stop mode that does not exist."""

    def __init__(self, mode: object, known: Iterable[str]) -> None:
        super().__init__(
            f"There is no stop mode {mode!r}.",
            kept="A stop that was asked for with it is made in mode 'now', so that it is not lost.",
            todo=f"Use one of: {', '.join(known)}.",
        )


class DuplicateTool(ConfigurationError):
    """Two tools of one agent have the same name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Two tools are named {name!r}.",
            todo="Give one of them another name: @tool(name=...), or MCPServer(prefix=...) for all of a server's.",
        )


class InvalidTool(ConfigurationError):
    """A function that cannot be offered to a model as a tool."""


class InvalidPrompt(ConfigurationError, TypeError):
    """A prompt that is neither text nor content."""

    def __init__(self, prompt: object, why: str = "") -> None:
        super().__init__(
            why or f"A prompt cannot be a {type(prompt).__name__}.",
            kept="The conversation is unchanged.",
            todo="Pass a string, a UserMessage, or a list of Text, Image, Document, Audio and Video parts.",
        )


class InvalidConversation(ConfigurationError):
    """Messages that no provider would accept."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        self.faults = faults
        super().__init__(
            f"The conversation is not valid: {'; '.join(faults)}.",
            todo="quiesce.conversation.validity.check() explains each rule.",
        )


class UnknownModel(ConfigurationError):
    """A model name that no provider here understands."""


class MissingExtra(ConfigurationError, ImportError):
    """A part of Quiesce needs a package that is not installed."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs the package {package!r}.", todo=f"Install it: pip install 'quiesce[{extra}]'.")


class ScriptError(ConfigurationError):
    """A scripted model was asked for more than its script holds, or the script makes no sense."""


# --- A conversation that is busy ----------------------------------------------------------------------------------


class ConversationBusy(QuiesceError):
    """A run holds this conversation; a second one must wait, or use a branch of its own."""

    kept = "Nothing was changed."
    todo = "Wait for it, stop it, choose another on_busy, or start on a branch with agent.fork()."

    def __init__(self, holder: str) -> None:
        self.holder = holder
        super().__init__(f"Run {holder} is using this conversation.")


class AgentFrozen(QuiesceError):
    """A run of a frozen agent was to be started. The message says who froze it, and why."""

    kept = "Nothing was started."
    todo = "Wait until the freeze is released: `quiesce unfreeze`."


class CapReached(QuiesceError):
    """A run was to be started above a cap of a fleet. After `retry_after` seconds it may be tried again."""

    kept = "Nothing was started."
    todo = "Wait, stop a run, or ask the operator for a higher cap."

    def __init__(self, what: str, *, counts: str, retry_after: float) -> None:
        self.counts = counts
        """What the cap counts: `runs`, `tokens` or `cost`."""
        self.retry_after = retry_after
        super().__init__(what)


class NothingToContinue(ConfigurationError):
    """`continue_()` on a conversation without an answer."""

    todo = "Send a prompt."


# --- A person is asked ---------------------------------------------------------------------------------------------


class InterruptError(QuiesceError):
    """Something about a question to a person, or its answer, cannot be done."""

    kept = "Nothing was run; what waits for an answer still waits."


class InterruptPending(InterruptError):
    """A plain prompt while a person is being asked, with on_prompt="refuse"."""

    todo = "Answer with agent.answer(), drop it with agent.cancel(), or use on_prompt='cancel_pending'."

    def __init__(self, interrupts: Iterable[str]) -> None:
        super().__init__(f"An answer is awaited: {', '.join(interrupts)}.")


class UnknownInterrupt(InterruptError):
    """An answer to an interrupt that is not pending, or was answered before."""

    def __init__(self, interrupt_id: object, known: Iterable[str]) -> None:
        asked = ", ".join(known)
        super().__init__(
            "No interrupt is pending." if interrupt_id is None else f"No interrupt {interrupt_id!r} is pending.",
            todo=f"Asked right now: {asked}." if asked else "Nothing is asked right now; send a plain prompt.",
        )


class InterruptExpired(InterruptError):
    """An answer that came too late."""

    todo = "answer() with the other answers, or with none, goes on; the call is then answered as never approved."

    def __init__(self, interrupt_id: str) -> None:
        super().__init__(f"It is too late to answer {interrupt_id!r}.")


class InvalidAnswer(InterruptError, ValueError):
    """An answer that does not fit what was asked."""


# --- A stop --------------------------------------------------------------------------------------------------------


class SharedConversationWarning(UserWarning):
    """Several tasks or threads send prompts to the one conversation that an agent keeps for itself.

    In a web application that mixes the messages of its users. Name the conversation for each prompt: `session=` or
    `conversation=`, or `conversation=None` for a question that is not remembered.
    """


class OutputMissing(QuiesceError, AttributeError):
    """`result.output` of a run that did not finish (it was stopped, failed, or waits for a person), or was refused."""

    todo = "Look at result.finished first; result.text has what the model wrote, result.stop_reason why it ended."


class Cancelled(QuiesceError):
    """Raised by `token.raise_if_cancelled()`: the run was asked to stop. A tool lets it pass."""

    def __init__(self, cause: StopCause) -> None:
        self.cause = cause
        super().__init__(f"Stopped ({cause}).")


# --- A run that failed --------------------------------------------------------------------------------------------


class RunError(QuiesceError):
    """A run ended because something failed. `result` holds everything up to the failure."""

    kept = "The prompt and everything streamed so far are in the conversation."
    result: KeptResult | None = None


class OutputInvalid(RunError):
    """The model did not produce the wanted output type within the allowed tries."""

    todo = "Raise output_retries, simplify output_type, or use a stronger model."


class StateNotSaved(RunError):
    """A tool or hook put something into the state of a session that has no JSON form.

    The messages are saved, and the state as it was before.
    """

    todo = "Keep JSON-like values in state; connections and other objects belong in deps=."


class ModelError(RunError):
    """The model call failed."""

    retryable: bool = False
    retry_after: float | None = None

    def __init__(
        self,
        what: str,
        *,
        kept: str = "",
        todo: str = "",
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(what, kept=kept, todo=todo)
        self.retry_after = retry_after
        self.request_id = request_id


class RateLimited(ModelError):
    """Too many requests (429). Retried, honouring Retry-After."""

    retryable = True
    todo = "Send fewer requests, or ask the provider for a higher limit."


class QuotaExceeded(ModelError):
    """The account has no credit or quota left. Retrying does not help."""

    todo = "Check the plan and billing of the account."


class Overloaded(ModelError):
    """The provider is out of capacity (503, 529). Retried."""

    retryable = True
    todo = "Try again later, or use another model."


class ServerError(ModelError):
    """The provider failed (5xx). Retried."""

    retryable = True
    todo = "Try again later."


class ConnectionFailed(ModelError):
    """The provider could not be reached: DNS, refused, reset, proxy. Retried."""

    retryable = True
    todo = "Check the network, the base_url and the proxy settings."


class ProxyFailed(ConnectionFailed):
    """The proxy between here and the provider refused, or could not be reached. Retried."""

    todo = "Check the proxy's address and login: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY."


class TLSFailed(ModelError):
    """The provider's certificate was not accepted."""

    todo = "Check the clock, the CA certificates and the base_url."


class ModelTimeout(ModelError):
    """The provider did not answer in the time allowed for one request. Retried."""

    retryable = True
    todo = "Raise first_token_timeout, stream_gap_timeout or the model's own timeout, or try again later."


class StreamBroken(ModelError):
    """The connection was lost in the middle of an answer that people had already begun to read."""

    todo = "Prompt again to go on; what was streamed is kept and marked as cut."


class AuthenticationFailed(ModelError):
    """The key was missing, wrong or not allowed to do this (401, 403)."""

    todo = "Check the API key."


class ModelNotFound(ModelError):
    """The provider does not know this model (404)."""

    todo = "Check the model's name."


class RequestRejected(ModelError):
    """The provider did not accept the request (400, 413, 422)."""

    todo = "The provider's message says which part."


class ContextTooLong(RequestRejected):
    """The conversation does not fit the model's context window."""

    todo = "Shorten the conversation, or use a model with a larger window."


class EmptyAnswer(ModelError):
    """The model answered with nothing at all. Retried."""

    retryable = True
    todo = "Try again, or change the prompt."


class ModelProtocolError(ModelError):
    """The model sent something that makes no sense."""

    todo = "If this is your own Model, check the order of its deltas with quiesce.testing.check_model()."


class MiddlewareFailed(RunError):
    """A middleware raised something around a model call."""

    todo = "Correct the middleware: it may raise a ModelError, or let those of the model pass."


class GuardrailTripped(QuiesceError):
    """Raise this in middleware to stop the run: its cause is `guardrail`, with this reason.

    keep   whether what readers have seen of the answer stays in the conversation, marked as stopped
    """

    def __init__(self, reason: str, *, keep: bool = True) -> None:
        self.reason = reason
        self.keep = keep
        super().__init__(reason)


# --- Sessions -----------------------------------------------------------------------------------------------------


class StoreError(RunError):
    """A session could not be read or written. What was reported as saved is still there.

    `what` is stored and sent to clients. `detail` is for the operator: where the store is, and the text of its driver.
    """

    happened = "The store failed."
    kept = "Everything that was reported as saved is in the store; what came after it is in the result only."
    retryable: bool = False
    detail = ""

    def __init__(self, what: str = "", *, kept: str = "", todo: str = "", detail: str = "") -> None:
        self.detail = detail
        super().__init__(what or self.happened, kept=kept, todo=todo)

    @property
    def public(self) -> str:
        """The text without `detail`."""
        return super().__str__()

    def __str__(self) -> str:
        return " ".join(part for part in (self.what, self.detail, self.kept, self.todo) if part)


def public_text(error: BaseException) -> str:
    """The text of an error for records and clients: nothing of where the store is."""
    return error.public if isinstance(error, StoreError) else str(error)


class SessionBusy(StoreError, ConversationBusy):
    """Another run, most likely in another process, has this session."""

    kept = "Nothing was written. The other run goes on undisturbed."
    todo = "Wait for it (Session(..., wait=...)), stop it, or use another session."

    def __init__(self, session: str, holder: str, expires_in: float) -> None:
        self.holder = holder
        self.session = session
        self.expires_in = expires_in
        self.overtaken = False
        """Whether a newer prompt has asked all that came before it to stop."""
        self.detail = f"It is held by {holder}."
        QuiesceError.__init__(
            self,
            f"Another process is using session {session!r}; its lease runs for another {max(0.0, expires_in):.0f} s.",
        )


class LeaseLost(StoreError):
    """The lease of this run has expired and another process holds the session now: writes of this run are refused."""

    todo = "Prompt again: the conversation will be loaded as it is now. A longer lease (lease=...) avoids this."


class StoreFull(StoreError):
    """There is no room left where the store writes."""

    happened = "There is no room left where the store writes."
    todo = "Free some space and prompt again."


class StoreReadOnly(StoreError):
    """The store may not be written. `retryable` for a database that is read-only as a whole, as during a failover."""

    happened = "The store may not be written."
    todo = "Check the permissions of the file and its folder, or of the database role."


class StoreUnavailable(StoreError):
    """The store cannot be reached, or does not answer. Writes are tried again for a while before this is raised."""

    happened = "The store cannot be reached, is locked, or does not answer."
    retryable = True
    todo = "Check that the database is up, then prompt again."


class StoreDamaged(StoreError):
    """What is in the store is not what was written there."""

    happened = "What is in the store is not what was written there."
    kept = "Nothing was changed."
    todo = "Restore the file from a copy, or import an export of the session."


class SessionNotFound(StoreError):
    """There is no session of this name."""

    kept = "Nothing was changed."
    todo = "`quiesce sessions list` shows those that there are."


class SessionExists(StoreError):
    """There is a session of this name already."""

    kept = "Nothing was changed."
    todo = "Delete it first, or use another name."


# --- Inside a tool -------------------------------------------------------------------------------------------------


class ToolError(QuiesceError):
    """Raise this in a tool to give the model an error message."""


class UndoConflict(QuiesceError):
    """Raise this in an undo function when what the tool left was changed since. The receipt says `failed`."""

    kept = "It was left as it is."

    def __init__(self, what: str, why: str = "is not what the tool left") -> None:
        super().__init__(f"changed since: {what} {why}.")


# --- A server, seen from the command line ---------------------------------------------------------------------------


class ServerProblem(QuiesceError):
    """A Quiesce server could not be reached, or refused what was asked of it.

    `status` is the HTTP status of a refusal, and `code` its name; without an answer they are 0 and empty.
    """

    status: int = 0
    code: str = ""
