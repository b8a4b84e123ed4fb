"""An agent: what a user configures, and the ways to run it and to stop it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, Unpack, overload

from msgspec.structs import replace

from ._threads.background_loop import portal
from .as_tool import agent_tool
from .cancellation import CancellationToken, Mode, ModeName, Source
from .cancellation.cause import parse_mode
from .compaction import Context
from .conversation.conversation import Conversation
from .conversation.sealing import DEFAULT_CUT_NOTE
from .conversation.validity import user_message
from .errors import ConfigurationError, UnknownMode
from .events import Event
from .hooks import Hook, HookEvent, Hooks, check_events
from .interrupts import Answers, Interrupt, checked_answers
from .limits import Limits, OnLimit
from .messages import Message, Prompt
from .middleware.base import Middleware, checked_middleware
from .models.base import Model, ToolChoice
from .models.resolve import resolve_model
from .receipt import UndoReceipt
from .result import RunResult
from .retry import Retry
from .run.agent_runs import AgentConfig, AgentRuns
from .run.argument_checks import (
    ToolSource,
    check_agent_options,
    check_instance,
    checked_agent_name,
    checked_context,
    checked_cut_note,
    checked_deps_type,
    checked_output_retries,
    checked_server_tools,
    checked_state,
    checked_tool_choice,
    is_sequential,
    own_conversation,
    tool_list,
    tool_table,
)
from .run.config import OnBusy, OnPrompt, RunConfig, open_estimator
from .run.events.stream import EventStream, events_in_this_thread
from .run.handle import Run
from .run.instructions import Instruction, checked_instructions
from .run.launch import RunDefaults
from .run.options import RunOptions
from .run.output import output_spec
from .run.own_conversation import OwnConversation
from .run.stream_timeouts import FIRST_TOKEN_TIMEOUT, STREAM_GAP_TIMEOUT, checked_timeouts
from .sessions.type_guard import is_session
from .tools.big_results import MAX_RESULT, checked_max_result
from .tools.tool import Tool
from .usage.estimate.calibration import Calibration
from .usage.live import LiveUsage
from .usage.stop_policy import RequestStopPolicy, StopAction, policy_for

if TYPE_CHECKING:
    import typing_extensions
    from typing_extensions import TypeForm

    from .sessions import Session, SessionStore, Store
    from .telemetry import Telemetry

    NO_DEPS: TypeForm[None] = None
    TEXT: TypeForm[str] = str
    DepsT = typing_extensions.TypeVar("DepsT", default=None)
    OutT = typing_extensions.TypeVar("OutT", default=str)
else:  # the defaults are for type checkers
    NO_DEPS = TEXT = None
    DepsT, OutT = TypeVar("DepsT"), TypeVar("OutT")
_T = TypeVar("_T")
_Hook = TypeVar("_Hook", bound=Hook)


class Agent(Generic[DepsT, OutT]):
    """A model with tools and instructions: a constant that serves many conversations at once, from any thread.

    A prompt goes to the session or conversation that its call names. Without one it goes to the conversation that the
    agent keeps for itself, which is meant for scripts and notebooks. Raises `ConfigurationError` (or one of its kinds)
    for anything that cannot work.

    model          a `Model`, or a name such as "anthropic:claude-..."
    deps_type      the type of `deps=`, what belongs to one run and its tools find as `ctx.deps`
    output_type    the type of the answer: pydantic model, dataclass, union ... `result.output` has it
    tools          functions, `@tool`s, other agents, sets of tools such as an `MCPServer`, and what the provider runs
                   itself: `WebSearch()`, `CodeExecution()`, `FileSearch(...)`
    instructions   the system prompt: text, a function of the `RunContext`, or a list of both
    timeout        seconds that a run may take; then it is stopped (cause: `deadline`)
    limits         budgets; see `Limits`. Without: 100 turns, 10 repeated calls
    on_limit       what happens at a limit: "stop", "answer" (the model gives one last answer, without tools) or "ask"
                   (the run ends with an interrupt; `answer` raises the limit and goes on)
    first_token_timeout   seconds until the model's first word; then `ModelTimeout`, which is retried
    stream_gap_timeout    seconds between two parts of an answer; then the answer is cut, and the run fails
    hooks          callbacks; see `quiesce.hooks`
    tool_choice    "auto", "none", "required", or the name of a tool that the first answer of a run must call
    middleware     code around model calls and tool calls, which may change them; see `quiesce.middleware`
    state          what the state of each new conversation begins with: a copy
    cut_note       the note for the model where an answer was stopped
    conversation   the agent's own conversation, to continue an earlier one: `Conversation(messages)`, a `Session`
    session        the same, by the name of a session that is saved as it goes on
    store          where sessions are: a `Store`, a path or a URL; the user's own SQLite file unless said otherwise
    on_busy        what a prompt does while a run is busy: "refuse" (raises `ConversationBusy`), "queue" (waits for its
                   turn), "steer" (is sent in the running run) or "cancel_previous" (stops what came before)
    on_prompt      what a plain prompt does while an approval is pending: "cancel_pending" (what waits is not run) or
                   "refuse" (raises `InterruptPending`)
    stop_policy    what a stop does about the request, for the bill; by default what is right for the provider
    calibration    what earlier calls have taught about token counts; see `quiesce.usage.Calibration`
    telemetry      OpenTelemetry spans; see `quiesce.telemetry`
    context        how a long conversation is kept inside the window: `Trim` or `Summarise`
    max_result     the most characters of a tool's result; of a longer one the middle is cut out, and the model can read
                   it with `read_result`. None for no limit
    """

    def __init__(
        self,
        model: Model | str | None = None,
        *,
        deps_type: TypeForm[DepsT] = NO_DEPS,
        output_type: TypeForm[OutT] = TEXT,
        tools: Iterable[ToolSource] = (),
        instructions: Instruction[DepsT] | list[Instruction[DepsT]] | tuple[Instruction[DepsT], ...] | None = None,
        name: str = "agent",
        timeout: float | None = None,
        limits: Limits | None = None,
        on_limit: OnLimit = "stop",
        first_token_timeout: float | None = FIRST_TOKEN_TIMEOUT,
        stream_gap_timeout: float | None = STREAM_GAP_TIMEOUT,
        hooks: Iterable[Hook] = (),
        middleware: Sequence[Middleware[Any]] = (),
        tool_choice: ToolChoice | None = None,
        retry: Retry | None = None,
        output_retries: int = 2,
        tool_execution: Literal["parallel", "sequential"] = "parallel",
        state: dict[str, Any] | None = None,
        cut_note: str = DEFAULT_CUT_NOTE,
        settings: Mapping[str, Any] | None = None,
        conversation: Conversation | None = None,
        session: str | Session | None = None,
        store: Store | SessionStore | str | PathLike[str] | None = None,
        on_busy: OnBusy = "refuse",
        on_prompt: OnPrompt = "cancel_pending",
        stop_policy: RequestStopPolicy | StopAction | None = None,
        calibration: Calibration | None = None,
        telemetry: Telemetry | None = None,
        context: Context | None = None,
        max_result: int | None = MAX_RESULT,
    ) -> None:
        check_agent_options(limits, retry, on_limit, settings, stop_policy=stop_policy, calibration=calibration)
        _check_telemetry(telemetry)
        own, resolved, given = own_conversation(conversation, session, store), resolve_model(model), tool_list(tools)
        table = tool_table(given, checked_deps_type(deps_type))
        run = RunConfig(
            checked_agent_name(name), resolved, checked_instructions(instructions), table, Hooks(hooks),
            limits or Limits(), retry or Retry(), output_spec(output_type), checked_output_retries(output_retries),
            is_sequential(tool_execution), checked_cut_note(cut_note), state=checked_state(state), settings=settings,
            context=checked_context(context), deps_type=deps_type, on_limit=on_limit,
            estimator=open_estimator(resolved, calibration), max_result=checked_max_result(max_result),
            stream_timeouts=checked_timeouts(first_token_timeout, stream_gap_timeout),
            middleware=checked_middleware(middleware), tool_choice=checked_tool_choice(tool_choice, table),
            stop_policy=policy_for(resolved.name, getattr(resolved, "stop_policy", None), stop_policy),
            server_tools=checked_server_tools(given, resolved),
        )  # fmt: skip
        self._runs = AgentRuns(AgentConfig(run, RunDefaults(timeout, on_busy, on_prompt, store), telemetry), own)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            f"The agent {self.name!r} cannot be pickled: its model holds connections. "
            "Make it a constant of a module, and import it where it is needed."
        )

    # --- Looking ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.config.agent

    @property
    def state(self) -> dict[str, Any]:
        """The state of the agent's own conversation, to read and to change. A session is loaded, as for `messages`."""
        return self._runs.own.loaded().begin_state(self.config.state)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The settled part of the own conversation: always valid. What a person has not answered is not approved.

        A session that was not used here yet is loaded. Raises `ConfigurationError` when that would block an event loop.
        """
        return self._runs.own.loaded().sealed(self.config.cut_note)

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """What a person is asked in the own conversation; see `answer`. A session is loaded, as for `messages`."""
        return self._runs.own.loaded().interrupts

    @property
    def config(self) -> RunConfig:
        """What this agent's runs are started with."""
        return self._runs.config.run

    @property
    def conversation(self) -> Conversation:
        """The conversation that prompts go to unless a call names another one."""
        return self._runs.own.conversation

    @property
    def session(self) -> Session | None:
        """The session, if this agent's own conversation is one."""
        return self._runs.own.conversation if is_session(self._runs.own.conversation) else None

    @property
    def active_runs(self) -> tuple[Run[Any], ...]:
        """The runs of this agent that have not ended."""
        return self._runs.active

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools, by name."""
        return self.config.tools

    @property
    def usage(self) -> LiveUsage:
        """What all runs of this agent have used, those that have not ended included."""
        return LiveUsage(self._runs.usage)

    @property
    def calibration(self) -> Calibration:
        """What this agent's calls have taught about its model's token counts; `dump()` it to keep it.

        The first call may take a quarter of a second, for the vocabulary that answers are counted in.
        """
        assert self.config.estimator is not None
        return self.config.estimator.learnt()

    def __repr__(self) -> str:
        return f"<Agent {self.name} {self.config.model.name}>"

    # --- Running ------------------------------------------------------------------------------------------------

    @overload
    def __call__(self, prompt: Prompt, **options: Unpack[RunOptions[DepsT]]) -> RunResult[OutT]: ...
    @overload
    def __call__(
        self, prompt: Prompt, *, output_type: TypeForm[_T], **options: Unpack[RunOptions[DepsT]]
    ) -> RunResult[_T]: ...
    def __call__(
        self, prompt: Prompt, *, output_type: Any = None, **options: Unpack[RunOptions[DepsT]]
    ) -> RunResult[Any]:
        """Run and wait for the result, with or without an event loop in this thread. Options as for `start`.

        Raises what `start` and `Run.wait` raise. Any other exception that is raised in this thread meanwhile, such as
        Ctrl-C or the time limit of a task queue, stops the run, and goes on when that is at rest.
        """
        return self._runs.wait_for(user_message(prompt), options, output_type)

    @overload
    async def invoke_async(self, prompt: Prompt, **options: Unpack[RunOptions[DepsT]]) -> RunResult[OutT]: ...
    @overload
    async def invoke_async(
        self, prompt: Prompt, *, output_type: TypeForm[_T], **options: Unpack[RunOptions[DepsT]]
    ) -> RunResult[_T]: ...
    async def invoke_async(
        self, prompt: Prompt, *, output_type: Any = None, **options: Unpack[RunOptions[DepsT]]
    ) -> RunResult[Any]:
        """Run and wait for the result. Options as for `start`.

        When the calling task is cancelled, the run is stopped (cause: `caller`), settles, and the cancellation goes on.
        Raises the `RunError` of a run that failed.
        """
        return await self._runs.wait_for_async(user_message(prompt), options, output_type)

    def stream(
        self, prompt: Prompt, *, output_type: TypeForm[object] | None = None, **options: Unpack[RunOptions[DepsT]]
    ) -> Iterator[Event]:
        """Run and iterate over the events in this thread, with or without an event loop in it. Options as for `start`.

        Leaving the loop early is a stop (cause: `disconnect`). A run that failed raises its error after the last event.
        """
        message, checked = user_message(prompt), self._runs.checked(options)
        return events_in_this_thread(lambda: self._runs.start_or_join(message, checked, output_type))

    @overload
    def stream_async(self, prompt: Prompt, **options: Unpack[RunOptions[DepsT]]) -> EventStream[OutT]: ...
    @overload
    def stream_async(
        self, prompt: Prompt, *, output_type: TypeForm[_T], **options: Unpack[RunOptions[DepsT]]
    ) -> EventStream[_T]: ...
    def stream_async(
        self, prompt: Prompt, *, output_type: Any = None, **options: Unpack[RunOptions[DepsT]]
    ) -> EventStream[Any]:
        """Run and iterate over the events. Leaving the loop early is a stop. Options as for `start`."""
        message = user_message(prompt)
        return EventStream(lambda: self._runs.start_or_join(message, self._runs.checked(options), output_type))

    @overload
    def start(self, prompt: Prompt, **options: Unpack[RunOptions[DepsT]]) -> Run[OutT]: ...
    @overload
    def start(self, prompt: Prompt, *, output_type: TypeForm[_T], **options: Unpack[RunOptions[DepsT]]) -> Run[_T]: ...
    def start(self, prompt: Prompt, *, output_type: Any = None, **options: Unpack[RunOptions[DepsT]]) -> Run[Any]:
        """Start a run and return its handle at once. Without a running event loop, it runs in a background thread.

        The options are those of `RunOptions`, and `output_type` for this run.

        Raises `InvalidPrompt` for a prompt that cannot be sent, `ConversationBusy` while another run holds the
        conversation, and `ConfigurationError` for options that cannot work; none changes anything.
        """
        return self._runs.start(user_message(prompt), options, output_type)

    # --- Going on -------------------------------------------------------------------------------------------------

    def answer(self, answers: Answers, **options: Unpack[RunOptions[DepsT]]) -> RunResult[OutT]:
        """Go on after `stop_reason == "interrupt"`, with answers by the id of the interrupt. Options as for `start`.

        An approval is answered with True, False, `Approve` or `Deny`; a question with any JSON-like value; a limit with
        True (as much again), how much more is allowed, or False (the run ends). What is not answered stays pending; the
        tools that finished before are not run again. Raises an `InterruptError` when the answers do not fit what is
        asked, and what `__call__` raises.
        """
        return self._runs.wait_for(checked_answers(answers), options)

    async def answer_async(self, answers: Answers, **options: Unpack[RunOptions[DepsT]]) -> RunResult[OutT]:
        """`answer`, for a running event loop."""
        return await self._runs.wait_for_async(checked_answers(answers), options)

    def start_answer(self, answers: Answers, **options: Unpack[RunOptions[DepsT]]) -> Run[OutT]:
        """`answer`, as a handle that is returned at once."""
        return self._runs.start(checked_answers(answers), options)

    def continue_(self, **options: Unpack[RunOptions[DepsT]]) -> RunResult[OutT]:
        """Let the model go on with its last answer, after a stop or at the limit of its length. Options as for `start`.

        A model with `supports_prefill` goes on in the same message, with no seam; another is asked to by a short user
        message. When the stop came before the model said anything, it is simply asked again.
        Raises `NothingToContinue` in an empty conversation, and what `__call__` raises.
        """
        return self._runs.wait_for(None, options)

    async def continue_async(self, **options: Unpack[RunOptions[DepsT]]) -> RunResult[OutT]:
        """`continue_`, for a running event loop."""
        return await self._runs.wait_for_async(None, options)

    def start_continue(self, **options: Unpack[RunOptions[DepsT]]) -> Run[OutT]:
        """`continue_`, as a handle that is returned at once."""
        return self._runs.start(None, options)

    def as_tool(self, name: str | None = None, description: str | None = None, *, memory: bool = False) -> Tool:
        """A tool whose call is a run of this agent: the model gives a prompt, and gets the answer.

        Each call has a conversation of its own, which `RunResult.children` keeps; with `memory=True` the calls of one
        parent conversation share one, which is saved with it, and run one at a time. The child has the parent's `deps`.
        Its events come as `ChildEvent`s in the parent's stream, its bill is part of the parent's, and it is stopped
        with the parent. A child that is stopped alone is a tool result that says so; one that fails is a tool error.
        """
        return agent_tool(self, name=name, description=description, memory=memory)

    # --- Stopping -----------------------------------------------------------------------------------------------

    def cancel(
        self, reason: str = "", *, mode: ModeName | Mode = Mode.NOW, source: Source = "user", arm: bool = True
    ) -> tuple[Run[Any], ...]:
        """Stop this agent's active runs; returns them. From any thread, at once, any number of times.

        What a person has not answered in the agent's own conversation is no longer asked: the calls that wait are
        answered as not run. When there is nothing to stop at all, the own conversation is armed: its next run ends at
        once as `cancelled`, one time, so that a stop that wins the race against its run is not lost. `arm=False` leaves
        that out. To stop one run, use its handle.
        Raises `UnknownMode` for a mode that does not exist; the stop is then made in mode `now`.
        """
        try:
            wanted = parse_mode(mode)
        except UnknownMode:
            self.cancel(reason, source=source, arm=arm)
            raise
        return self._runs.cancel(reason, wanted, source, arm=arm)

    def undo(
        self,
        *,
        session: str | Session | None = None,
        conversation: Conversation | None = None,
        token: CancellationToken | None = None,
    ) -> tuple[UndoReceipt, ...]:
        """Undo what the last task did in a conversation: all its runs, those of earlier processes too.

        A task is a prompt and everything that followed from it. What a person is asked is withdrawn first; then the
        completed calls are undone, the last one first, each at most once, and the model is told. Without a session or
        conversation it is the agent's own. Cancelling `token` stops it: what was not begun can be undone later.
        Raises `ConversationBusy` while a run holds the conversation, and a `StoreError`; then nothing is undone.
        """
        return portal().run(lambda: self.undo_async(session=session, conversation=conversation, token=token))

    async def undo_async(
        self,
        *,
        session: str | Session | None = None,
        conversation: Conversation | None = None,
        token: CancellationToken | None = None,
    ) -> tuple[UndoReceipt, ...]:
        """`undo`, for a running event loop. A cancellation of the calling task stops it."""
        return await self._runs.undo(session, conversation, token)

    # --- More -----------------------------------------------------------------------------------------------------

    def override(self, **options: Unpack[RunOptions[DepsT]]) -> AbstractContextManager[None]:
        """Replace options of all runs that are started inside the block, whatever their calls say: for tests.

        `with agent.override(model=ScriptedModel(...), deps=FakeShop()):`. It holds for this task or thread and for
        those that are started from it. Raises `ConfigurationError` for options that cannot work.
        """
        return self._runs.override(options)

    def hook(self, *events: type[HookEvent]) -> Callable[[_Hook], _Hook]:
        """A decorator that registers a hook, for the events given or for those that its first parameter names."""
        check_events(events)

        def register(hook: _Hook) -> _Hook:
            self.config.hooks.add(hook, *events)
            return hook

        return register

    def add_tools(self, *tools: ToolSource) -> None:
        """Give the agent more tools: for agents that need each other, such as two that hand off to each other.

        Runs that have begun go on with the tools that they have. Raises `DuplicateTool`, and what a tool that cannot
        work raises; nothing is added then.
        """
        config = self.config
        more = tool_table((*config.tools.values(), *tools), config.deps_type)
        server_tools = checked_server_tools((*config.server_tools, *tools), config.model)
        self._runs.config = replace(self._runs.config, run=replace(config, tools=more, server_tools=server_tools))

    def fork(self, at: int | None = None) -> Agent[DepsT, OutT]:
        """An agent with the same configuration and a branch of its own conversation, to use beside this one.

        `at` says how many messages to begin with, for trying again from an earlier point (see `Conversation.branch`).
        A session is loaded, as for `messages`, unless `at` is 0.
        """
        twin: Agent[DepsT, OutT] = object.__new__(type(self))
        run = replace(self.config, hooks=self.config.hooks.copy())
        conversation = Conversation() if at == 0 else self._runs.own.loaded().branch(at)
        twin._runs = AgentRuns(replace(self._runs.config, run=run), conversation)
        return twin

    def clear(self) -> None:
        """Forget the agent's own conversation. Raises `ConversationBusy` while a run holds it.

        Raises `ConfigurationError` for a session: delete that from its store instead.
        """
        before = self._runs.own.conversation
        if is_session(before):
            raise ConfigurationError(f"{before!r} is not forgotten so easily.", todo="Use store.delete(session.name).")
        before.hold("clear")
        try:
            self._runs.own = OwnConversation(Conversation(), self.name)
            before.drop_pending()
        finally:
            before.release("clear")


AnyAgent: TypeAlias = Agent[Any, Any]
"""An agent, whatever its deps and its output are."""


def _check_telemetry(telemetry: object) -> None:
    """Raises `ConfigurationError` for what is neither None nor telemetry."""
    if telemetry is not None:
        from .telemetry import Telemetry  # loaded when it is first used

        check_instance("telemetry", telemetry, Telemetry, "Telemetry(...)")
