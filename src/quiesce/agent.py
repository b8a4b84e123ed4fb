"""An agent: what a user configures, and the ways to run it and to stop it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Literal, Unpack

from ._background_loop import running_loop
from .as_tool import agent_tool, parent_of
from .cancellation import CancellationToken, Cause, Mode, Source
from .cancellation.cause import parse_mode
from .compaction import Context
from .conversation.continuation import CONTINUE, Continue
from .conversation.sealing import DEFAULT_CUT_NOTE
from .conversation.validity import user_message
from .errors import ConfigurationError, ConversationBusy, UnknownMode
from .events import Event
from .hooks import Hook, HookEvent, Hooks
from .interrupts import Answers, Interrupt
from .limits import Limits
from .messages import Message, Prompt, UserMessage
from .models.base import Model
from .models.resolve import resolve_model
from .result import RunResult
from .retry import Retry
from .run import argument_checks as checks
from .run.config import OnBusy, OnPrompt, RunConfig, open_estimator, run_input, with_options
from .run.events.stream import EventStream, events_in_this_thread, run_in_background
from .run.handle import Run
from .run.options import RunOptions, check_options
from .run.output import OutputSpec
from .run.start import claim_or_queue
from .run.state import RunState
from .sessions import Conversation, Session, SessionStore, Store
from .telemetry import Telemetry
from .tools.tool import Tool
from .usage.agent_usage import AgentUsage
from .usage.estimate.calibration import Calibration
from .usage.live import LiveUsage
from .usage.stop_policy import RequestStopPolicy, StopAction, policy_for


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What an agent is made with: the configuration of its runs, and what a run may be given instead."""

    run: RunConfig
    timeout: float | None = None
    on_busy: OnBusy = "refuse"
    on_prompt: OnPrompt = "cancel_pending"
    telemetry: Telemetry | None = None


class Agent:
    """A model with tools, instructions and limits, and a conversation. Reusable, and safe to share between threads.

    Raises `ConfigurationError` (or one of its kinds) for anything that cannot work.

    model          a `Model`, or a name such as "anthropic:claude-..."
    tools          functions, `@tool`s, other agents, or sets of tools such as an `MCPServer`
    instructions   the system prompt
    timeout        seconds that a run may take; then it is stopped (cause: `deadline`)
    limits         budgets; see `Limits`
    hooks          callbacks; see `quiesce.hooks`
    output_type    the type of the answer: pydantic model, dataclass, union ...
    messages       a conversation to continue
    cut_note       the note for the model where an answer was stopped
    conversation   the same, with what is pending in it (see `Conversation.restore`)
    on_busy        what a prompt does while a run is busy: "refuse" (raises `ConversationBusy`), "queue" (waits for its
                   turn), "steer" (is sent in the running run) or "cancel_previous" (stops what came before)
    on_prompt      what a plain prompt does while an approval is pending: "cancel_pending" (what waits is not run) or
                   "refuse" (raises `InterruptPending`)
    stop_policy    what a stop does about the request, for the bill; by default what is right for the provider
    calibration    what earlier calls have taught about token counts; see `quiesce.usage.Calibration`
    telemetry      OpenTelemetry spans; see `quiesce.telemetry`
    context        how a long conversation is kept inside the window: `Trim` or `Summarise`
    session        the name of a conversation that is saved as it goes on, or a `Session`
    store          where: a `Store`, a path or a URL; the user's own SQLite file unless said otherwise
    session_wait   seconds to wait for a session that another process has, before `SessionBusy`
    on_store_failure   "stop" a run that can no longer be saved, or "continue" it in memory
    """

    def __init__(
        self,
        model: Model | str | None = None,
        *,
        tools: Iterable[checks.ToolSource] = (),
        instructions: str | None = None,
        name: str = "agent",
        timeout: float | None = None,
        limits: Limits | None = None,
        hooks: Iterable[Hook] = (),
        retry: Retry | None = None,
        output_type: Any = None,
        output_retries: int = 2,
        messages: Iterable[Message] = (),
        tool_execution: Literal["parallel", "sequential"] = "parallel",
        state: dict[str, Any] | None = None,
        cut_note: str = DEFAULT_CUT_NOTE,
        settings: dict[str, Any] | None = None,
        conversation: Conversation | None = None,
        on_busy: OnBusy = "refuse",
        on_prompt: OnPrompt = "cancel_pending",
        stop_policy: RequestStopPolicy | StopAction | None = None,
        calibration: Calibration | None = None,
        telemetry: Telemetry | None = None,
        context: Context | None = None,
        session: str | Session | None = None,
        store: Store | SessionStore | str | PathLike[str] | None = None,
        session_wait: float = 0.0,
        on_store_failure: Literal["stop", "continue"] = "stop",
    ) -> None:
        if not cut_note.strip():
            raise ConfigurationError("cut_note is blank.", todo="Providers refuse blank text: use a short sentence.")
        checks.check_choice("on_busy", on_busy, OnBusy)
        checks.check_choice("on_prompt", on_prompt, OnPrompt)
        own = checks.own_conversation(
            conversation, tuple(messages), session, store, wait=session_wait, on_store_failure=on_store_failure
        )
        resolved, sequential = resolve_model(model), checks.is_sequential(tool_execution)
        run = RunConfig(
            name, resolved, instructions, checks.tool_table(tools), Hooks(hooks), limits or Limits(), retry or Retry(),
            None if output_type is None else OutputSpec(output_type), output_retries, sequential, cut_note,
            state={} if state is None else state, settings=settings, context=context,
            estimator=open_estimator(resolved, calibration),
            stop_policy=policy_for(resolved.name, getattr(resolved, "stop_policy", None), stop_policy),
        )  # fmt: skip
        self._start_with(AgentConfig(run, checks.checked_seconds(timeout), on_busy, on_prompt, telemetry), own)

    def _start_with(self, config: AgentConfig, conversation: Conversation) -> None:
        self._config = config
        self._conversation = conversation
        self._active: dict[str, Run] = {}
        self._armed: dict[str, Cause] = {}
        self._usage = AgentUsage()

    # --- Looking ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.config.agent

    @property
    def state(self) -> dict[str, Any]:
        """The state that the agent's tools share."""
        return self.config.state

    @property
    def messages(self) -> tuple[Message, ...]:
        """The settled part of the conversation: always valid. What a person has not answered counts as not approved."""
        return self._conversation.sealed(self.config.cut_note)

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """What a person is asked; see `resume`."""
        return self._conversation.interrupts

    @property
    def config(self) -> RunConfig:
        """What this agent's runs are started with."""
        return self._config.run

    @property
    def conversation(self) -> Conversation:
        """The conversation that prompts go to unless a call names another one."""
        return self._conversation

    @property
    def session(self) -> Session | None:
        """The session, if this agent's conversation is one."""
        return self._conversation if isinstance(self._conversation, Session) else None

    @property
    def active_runs(self) -> tuple[Run, ...]:
        """The runs of this agent that have not ended."""
        return tuple(self._active.copy().values())

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools, by name."""
        return self.config.tools

    @property
    def usage(self) -> LiveUsage:
        """What all runs of this agent have used, those that have not ended included."""
        return LiveUsage(self._usage)

    @property
    def calibration(self) -> Calibration:
        """What this agent's calls have taught about its model's token counts; `dump()` it to keep it."""
        assert self.config.estimator is not None
        return self.config.estimator.calibration

    def __repr__(self) -> str:
        return f"<Agent {self.name} {self.config.model.name}>"

    # --- Running ------------------------------------------------------------------------------------------------

    def __call__(self, prompt: Prompt | Answers | Continue, **options: Unpack[RunOptions]) -> RunResult:
        """Run and wait for the result, with or without an event loop in this thread. Options as for `start`.

        Raises what `start` and `Run.wait` raise. Any other exception that is raised in this thread meanwhile, such as
        Ctrl-C or the time limit of a task queue, stops the run, and goes on when that is at rest.
        """
        return run_in_background(
            lambda: self._start_or_join(prompt, options),
            lambda run, is_mine: run.wait() if is_mine else run.wait_joined(),
        )

    async def invoke_async(self, prompt: Prompt | Answers | Continue, **options: Unpack[RunOptions]) -> RunResult:
        """Run and wait for the result. Options as for `start`.

        When the calling task is cancelled, the run is stopped (cause: `task`), settles, and the cancellation goes on.
        Raises the `RunError` of a run that failed.
        """
        run, mine = self._start_or_join(prompt, options)
        return await (run.owned() if mine else run.result())

    def stream(self, prompt: Prompt | Answers | Continue, **options: Unpack[RunOptions]) -> Iterator[Event]:
        """Run and iterate over the events in this thread, with or without an event loop in it. Options as for `start`.

        Leaving the loop early is a stop (cause: `disconnect`). A run that failed raises its error after the last event.
        """
        return events_in_this_thread(lambda: self._start_or_join(prompt, options))

    def stream_async(self, prompt: Prompt | Answers | Continue, **options: Unpack[RunOptions]) -> EventStream:
        """Run and iterate over the events. Leaving the loop early is a stop. Options as for `start`."""
        return EventStream(lambda: self._start_or_join(prompt, options))

    def start(self, prompt: Prompt | Answers | Continue, **options: Unpack[RunOptions]) -> Run:
        """Start a run and return its handle at once. Without a running event loop, it runs in a background thread.

        A prompt that is a mapping answers what a person is asked, as in `resume`; `CONTINUE` is `continue_()`. The
        options are those of `RunOptions`.

        Raises `InvalidPrompt` for a prompt that cannot be sent, `ConversationBusy` while another run holds the
        conversation, an `InterruptError` for answers that do not fit, `NothingToContinue`, and `ConfigurationError` for
        options that cannot work; none changes anything.
        """
        if running_loop() is None:
            return run_in_background(lambda: self._start_or_join(prompt, options), lambda run, _: run)
        return self._start_or_join(prompt, options)[0]

    def _start_or_join(self, prompt: Prompt | Answers | Continue, options: RunOptions) -> tuple[Run, bool]:
        """A run, and whether it is the caller's: a prompt that steered a run of another caller does not own it."""
        check_options(options)
        state = self._new_state(prompt if isinstance(prompt, Mapping | Continue) else user_message(prompt), options)
        steered, run_id, timeout = claim_or_queue(state), state.run_id, options.get("timeout")
        if isinstance(steered, Run):
            return steered, False
        run = Run(state, timeout=self._config.timeout if timeout is None else timeout, on_end=self._on_run_end)
        self._active[run_id] = state.claim.conversation.runs[run_id] = run
        self._usage.open(state.spending.bill.ledger)
        if self._config.telemetry is not None:
            run.tap(self._config.telemetry.follow(run_id, self.name, state.config.model.name))
        armed = self._armed.pop("cause", None)
        if armed is not None:
            state.token.cancel(armed.reason, mode=armed.mode, source=armed.source)
        return run, True

    def _new_state(self, prompt: UserMessage | Answers | Continue, options: RunOptions) -> RunState:
        """The state of a run that is about to be started. Raises what cannot work about its prompt or options."""
        within, token = options.get("within"), options.get("token")
        conversation = options.get("conversation") or self._conversation
        given = run_input(
            prompt,
            is_asked=bool(conversation.interrupts),
            on_prompt=options.get("on_prompt") or self._config.on_prompt,
            on_busy=options.get("on_busy") or self._config.on_busy,
        )
        config = with_options(self.config, options.get("limits"), options.get("output_type"))
        parent = None if within is None else parent_of(within, self.config)
        of_call = None if within is None else within.token.child()  # stopped with the call, and so with its run
        own_token = CancellationToken.any(*(each for each in (token, of_call) if each is not None))
        return RunState(uuid.uuid4().hex[:12], config, conversation, given, own_token, parent=parent)

    def resume(self, answers: Answers, **options: Unpack[RunOptions]) -> RunResult:
        """Go on after `stop_reason == "interrupt"`, with answers by the id of the interrupt. Options as for `start`.

        An approval is answered with True, False, `Approve` or `Deny`; a question with any JSON-like value. What is not
        answered stays pending; the tools that finished before are not run again. Raises an `InterruptError` when the
        answers do not fit what is asked, and what `__call__` raises.
        """
        return self({**answers}, **options)

    async def resume_async(self, answers: Answers, **options: Unpack[RunOptions]) -> RunResult:
        """`resume`, for a running event loop."""
        return await self.invoke_async({**answers}, **options)

    def continue_(self, **options: Unpack[RunOptions]) -> RunResult:
        """Let the model go on with its last answer, after a stop or at the limit of its length. Options as for `start`.

        A model with `supports_prefill` goes on in the same message, with no seam; another is asked to by a short user
        message. When the stop came before the model said anything, it is simply asked again.
        Raises `NothingToContinue` in an empty conversation, and what `__call__` raises.
        """
        return self(CONTINUE, **options)

    async def continue_async(self, **options: Unpack[RunOptions]) -> RunResult:
        """`continue_`, for a running event loop."""
        return await self.invoke_async(CONTINUE, **options)

    def as_tool(self, name: str | None = None, description: str | None = None, *, memory: bool = False) -> Tool:
        """A tool whose call is a run of this agent: the model gives a prompt, and gets the answer.

        Each call has a conversation of its own, which `RunResult.children` keeps; with `memory=True` all calls share
        this agent's conversation and run one at a time. The child's events come as `ChildEvent`s in the parent's
        stream, its bill is part of the parent's, and it is stopped with the parent. A child that is stopped alone is a
        tool result that says so; one that fails is a tool error.
        """
        return agent_tool(self, name=name, description=description, memory=memory)

    def _on_run_end(self, state: RunState) -> None:
        self._active.pop(state.run_id, None)
        self._usage.close(state.spending.bill.ledger)

    # --- Stopping -----------------------------------------------------------------------------------------------

    def cancel(
        self, reason: str = "", *, mode: str = Mode.NOW, source: Source = "user", arm: bool = True
    ) -> tuple[Run, ...]:
        """Stop this agent's active runs; returns them. From any thread, at once, any number of times.

        What a person has not answered is no longer asked: the calls that wait are answered as not run. When there is
        nothing to stop at all, the agent is armed: its next run ends at once as `cancelled`, one time, so that a stop
        that wins the race against its run is not lost. `arm=False` leaves that out. To stop one run, use its handle.
        Raises `UnknownMode` for a mode that does not exist; the stop is then made in mode `now`.
        """
        try:
            wanted = parse_mode(mode)
        except UnknownMode:
            self.cancel(reason, source=source, arm=arm)
            raise
        runs = self.active_runs
        for run in runs:
            run.cancel(reason, mode=wanted, source=source)
        asked: tuple[Interrupt, ...] = ()
        with suppress(ConversationBusy):
            asked = self._conversation.cancel_pending(self.config.cut_note)
        if not runs and not asked and arm:
            self._armed.setdefault("cause", Cause(source, reason, wanted))
            runs = self.active_runs  # one may have started just now, before it could see that the agent is armed
            if runs:
                self._armed.pop("cause", None)
        for run in runs:
            run.cancel(reason, mode=wanted, source=source)
        return runs

    # --- More -----------------------------------------------------------------------------------------------------

    def hook(self, *events: type[HookEvent]) -> Callable[[Hook], Hook]:
        """A decorator that registers a hook, for the events given or for those that its first parameter names."""

        def register(hook: Hook) -> Hook:
            self.config.hooks.add(hook, *events)
            return hook

        return register

    def add_tools(self, *tools: checks.ToolSource) -> None:
        """Give the agent more tools: for agents that need each other, such as two that hand over to one another.

        Runs that have begun go on with the tools that they have. Raises `DuplicateTool`, and what a tool that cannot
        work raises; nothing is added then.
        """
        more = checks.tool_table((*self.config.tools.values(), *tools))
        self._config = replace(self._config, run=replace(self.config, tools=more))

    def fork(self, at: int | None = None) -> Agent:
        """An agent with the same configuration and a branch of this conversation, to use beside this one.

        `at` says how many messages to begin with, for trying again from an earlier point (see `Conversation.branch`).
        """
        twin = object.__new__(Agent)
        run = replace(self.config, hooks=self.config.hooks.copy())
        twin._start_with(replace(self._config, run=run), self._conversation.branch(at))
        return twin

    def clear(self) -> None:
        """Forget the conversation. Raises `ConversationBusy` while a run holds it.

        Raises `ConfigurationError` for a session: delete that from its store instead.
        """
        if isinstance(self._conversation, Session):
            raise ConfigurationError(
                f"{self._conversation!r} is not forgotten so easily.", todo="Use session.store.delete(session.name)."
            )
        before = self._conversation
        before.hold("clear")
        self._conversation = Conversation()
        before.drop_pending()
        before.release("clear")
