// The types of client.js. Made from the server's OpenAPI document by tools/javascript_types.py.

/** Why a request failed: the server refused it, or could not be reached (`status` 0). */
export class ServerProblem extends Error {
  status: number;
  code: string;
  todo: string;
  /** The message and what to do, as one text. */
  get text(): string;
  /** Whether a retry may succeed. */
  get isPassing(): boolean;
}

export interface ClientOptions {
  /** An API key, or a function that returns one. */
  key?: string | (() => string);
  /** Called when the server refuses the key. When its promise resolves, the request is sent again. */
  keyNeeded?: (problem: string) => Promise<void>;
  /** Replaces the global `fetch`. */
  fetch?: (url: URL, init: RequestInit) => Promise<Response>;
}

export interface RequestOptions {
  signal?: AbortSignal;
}

/** When a stream is read: `open` waits until it may be, and `watch` closes a connection, which is then opened again. */
export interface StreamGate {
  open(signal?: AbortSignal): Promise<void> | undefined;
  watch(leave: () => void): () => void;
}

export interface StreamOptions<Place> extends RequestOptions {
  /** Begin after this event. */
  after?: Place;
  /** For how many milliseconds a lost connection is tried again: 30,000 by default. */
  patience?: number;
  /** Called with a problem when the connection is lost, and with null when it is there. */
  onConnection?: (problem: Error | null) => void;
  gate?: StreamGate;
}

/** The events from `first` to `last` are no longer kept by the server. */
export interface EventGap {
  type: "gap";
  first: number;
  last: number;
}

/** An event of a run, its number, and when it happened, in seconds since 1970, or null when that is not known. */
export interface StreamedEvent {
  number: number;
  event: Event | EventGap;
  at: number | null;
}

/** Retry an action until it succeeds, with a longer delay each time. Errors that no retry can fix are thrown. */
export function insist<T>(
  action: () => Promise<T>,
  options?: RequestOptions & { onRetry?: (problem: ServerProblem) => void },
): Promise<T>;

/** One server. Each operation of its OpenAPI document is a method. */
export class Client {
  constructor(url: string | URL, options?: ClientOptions);
  /** Start a run. */
  startRun(body: StartRun, options?: RequestOptions & { idempotencyKey?: string }): Promise<RunAnswer>;
  /** The runs. */
  listRuns(options?: RequestOptions & { state?: "queued" | "running" | "stopping" | "ended" | "crashed"; session?: string; agent?: string; since?: number; until?: number; search?: string; before?: string; limit?: number }): Promise<RunList>;
  /** The changes in the list of runs, as a stream. */
  streamChanges(options?: StreamOptions<string>): AsyncGenerator<RunsChange, void, undefined>;
  /** A run, its conversation and its receipt. */
  showRun(id: string, options?: RequestOptions): Promise<RunDetail>;
  /** Delete an ended run. */
  deleteRun(id: string, options?: RequestOptions): Promise<void>;
  /** All events of a run, past and future. */
  streamEvents(id: string, options?: StreamOptions<number>): AsyncGenerator<StreamedEvent, void, undefined>;
  /** Stop a run. */
  cancelRun(id: string, body?: CancelRun, options?: RequestOptions & { wait?: number }): Promise<CancelAnswer>;
  /** Steer a running run with a prompt. */
  steerRun(id: string, body: SteerRun, options?: RequestOptions): Promise<Accepted>;
  /** Let a run wait before its next step, or go on. */
  pauseRun(id: string, body?: PauseRun, options?: RequestOptions): Promise<Accepted>;
  /** Answer the questions of a run. */
  resumeRun(id: string, body: ResumeRun, options?: RequestOptions): Promise<RunAnswer>;
  /** Undo the calls of tools that have an undo. */
  undoRun(id: string, body?: Nothing, options?: RequestOptions & { wait?: number }): Promise<ReceiptAnswer>;
  /** Continue the answer of a stopped run, in a new run. */
  continueRun(id: string, body?: Nothing, options?: RequestOptions): Promise<RunAnswer>;
  /** Stop one tool call; the run goes on. */
  cancelTool(id: string, call: string, body?: CancelTool, options?: RequestOptions): Promise<Accepted>;
  /** The sessions. */
  listSessions(options?: RequestOptions): Promise<SessionList>;
  /** A session and its conversation. */
  showSession(name: string, options?: RequestOptions): Promise<SessionDetail>;
  /** Delete a session. */
  deleteSession(name: string, options?: RequestOptions): Promise<void>;
  /** The approvals that were given in advance. */
  listApprovals(options?: RequestOptions): Promise<ApprovalList>;
  /** Take back an approval that was given in advance. */
  deleteApproval(approval: string, options?: RequestOptions): Promise<void>;
  /** Who has started, stopped, answered, steered and deleted what. */
  showAudit(options?: RequestOptions & { before?: number; limit?: number; action?: "start" | "stop" | "stop_tool" | "steer" | "pause" | "unpause" | "approve" | "deny" | "answer" | "withdraw" | "continue" | "undo" | "delete_run" | "delete_session" | "allow" | "disallow"; run?: string }): Promise<AuditPage>;
  /** The usage. */
  showUsage(options?: RequestOptions & { since?: string; until?: string; agent?: string; session?: string }): Promise<UsageReport>;
  /** The usage of all keys, for an operator. */
  showUsageByKey(options?: RequestOptions & { since?: string; until?: string; agent?: string; key?: string }): Promise<UsageByKey>;
  /** The agents. */
  listAgents(options?: RequestOptions): Promise<AgentList>;
  /** The workers, the queue and the freezes of a fleet. */
  showFleet(options?: RequestOptions): Promise<FleetView>;
  /** Whether the server accepts new runs. */
  health(options?: RequestOptions): Promise<Health>;
}

/** Whether the request changed anything. In a fleet it may be stored, and the run's worker not have it yet. */
export interface Accepted {
  /** Whether the request changed anything, or is stored for a worker that does not answer yet. */
  accepted: boolean;
  /** False when the run's worker does not have it yet. Always true without a fleet. */
  delivered: boolean;
}

/** The agents of this server; the first is the default. */
export interface AgentList {
  /** The agents; the first is the default. */
  agents: AgentView[];
}

/** An agent that runs can be started with. */
export interface AgentView {
  /** The name, for `agent` in `POST /runs`. */
  name: string;
  /** The name of the model. */
  model: string;
  /** The tools that the agent may call. */
  tools: ToolView[];
}

/**
 * The answer to one interrupt.
 *
 * For an approval: true, false, `{"type": "approve"}` (with `arguments` to call the tool with others) or
 * `{"type": "deny", "reason": ...}`. For a question: any value.
 */
export interface Answer {
  /** The id of the interrupt. */
  id: string;
  /** For an approval: true, false, approve or deny. For a question: any value. For a limit: a number. */
  answer: unknown;
  /** With an approval: it counts for later calls too. See `GET /approvals`. */
  remember?: Remember | null;
}

/**
 * The answer is complete. A stream that ends without this was torn.
 *
 * `detail` is what the provider says about a refusal, or about an answer that has no content.
 */
export interface AnswerEnd {
  /** Which kind of object this is. */
  type: "answer_end";
  /** Why the answer ended. */
  reason: "end_turn" | "max_tokens" | "pause" | "refusal" | "stop_sequence" | "tool_use";
  /** More about it, as a sentence. */
  detail: string;
}

/**
 * Who has answered an interrupt, and how. It is for people: the model never gets it.
 *
 * `by` is the owner of the run that took the answer: on a server, the name of the API key. `reason` is that of a no.
 * `arguments` are those that replace the model's. `standing` is the id of the approval that was given in advance, when
 * the call was approved by one.
 */
export interface AnswerRecord {
  /** The id of the interrupt. */
  interrupt_id: string;
  /** The id of the tool call. */
  call_id: string;
  /** The name of the tool. */
  tool_name: string;
  /** What was decided. */
  decision: "answered" | "approved" | "denied";
  /** The owner of the run that took the answer: on a server, the name of the API key. */
  by: string;
  /** When it was answered, in seconds since 1970. */
  at: number;
  /** The reason of a no. */
  reason: string;
  /** The arguments that replace the model's; null when they are unchanged. */
  arguments: Record<string, unknown> | null;
  /** The id of the approval that was given in advance, when one approved the call. */
  standing: string;
}

/** The provider accepted the request. Optional; carries its id. */
export interface AnswerStart {
  /** Which kind of object this is. */
  type: "answer_start";
  /** The provider's id of the request. */
  request_id: string | null;
  /** The name of the model. */
  model: string | null;
}

/** The approvals that were given in advance, the newest first. */
export interface ApprovalList {
  /** The approvals, the newest first. */
  approvals: StandingApproval[];
}

/** What one argument of a call must be: exactly `equals`, or a text like `like`. */
export interface ArgumentPattern {
  /** The argument has exactly this value. */
  equals?: unknown;
  /** The argument is a text of this form; `*` stands for any characters within a line. */
  like?: string;
}

/** What the model said and asked for. `cut` says that a stop or an error ended it early. */
export interface AssistantMessage {
  /** Which kind of object this is. */
  type: "assistant";
  /** The parts, in order. */
  content: (Text | Reasoning | ToolCall | CutNote | ProviderPart)[];
  /** The model that wrote it. */
  model: string | null;
  /** Whether a stop or an error ended it early. */
  cut: boolean;
}

/** Speech or music for the model to hear. */
export interface Audio {
  /** Which kind of object this is. */
  type: "audio";
  /** The media type of the data. */
  media_type?: string;
  /** The content, in base64. */
  data?: string | null;
  /** The address of the content, instead of data. */
  url?: string | null;
  /** The name of the file. */
  name?: string | null;
  /** The id of a file that was uploaded to the provider, instead of the data. */
  file_id?: string | null;
}

/** Something that was done. */
export interface AuditEntry {
  /** Counts the entries of this key, from 1. */
  number: number;
  /** When, in seconds since the epoch. */
  at: number;
  /** The key, the approval that was given in advance, or what else has stopped a run. */
  who: string;
  /** What was done. `allow` and `disallow` are about approvals that are given in advance. */
  action: "allow" | "answer" | "approve" | "continue" | "delete_run" | "delete_session" | "deny" | "disallow" | "pause" | "start" | "steer" | "stop" | "stop_tool" | "undo" | "unpause" | "withdraw";
  /** The run that it was done to, or that it started. */
  run: string;
  /** The session. */
  session: string;
  /** The agent. */
  agent: string;
  /** The mode and the reason of a stop, the tool that was approved, and so on. */
  detail: string;
}

/** Some entries of the audit, the newest first. */
export interface AuditPage {
  /** The entries, the newest first. */
  entries: AuditEntry[];
  /** Give this as `before` to get older ones; null when there are none. */
  next: number | null;
}

/** What became of one tool call of the run. */
export interface CallReceipt {
  /** The id of the tool call. */
  call_id: string;
  /** The name of the tool. */
  name: string;
  /** What became of the call. */
  outcome: Outcome;
  /** Whether it succeeded. */
  ok: boolean;
  /** More about it, as a sentence. */
  detail: string;
  /** How long it took, in seconds. */
  seconds: number | null;
  /** Whether the call waits for a person. */
  waits: boolean;
  /** The characters of the whole text, when its middle was left out. */
  full_length: number | null;
}

/**
 * Whether the request changed anything, and the run; with the receipt once the run has ended.
 *
 * `delivered` is false while the stop is stored, and the run's worker has not said that the run has it.
 */
export interface CancelAnswer {
  /** Whether this request began the stop or made it more urgent. */
  accepted: boolean;
  /** The run. */
  run: RunView;
  /** The receipt: cause, outcome of every call, what still runs, usage. Null until the run has ended. */
  receipt: Receipt | null;
  /** Whether the run has the stop. False while its worker has not said so. */
  delivered: boolean;
}

/**
 * The body of `POST /runs/{id}/cancel`.
 *
 * `undo` undoes the run's completed calls before the run ends; false withdraws that.
 */
export interface CancelRun {
  /** The reason, for the receipt and for the model. */
  reason?: string;
  /** How urgent the stop is: after_turn, after_tools, now or kill. */
  mode?: Mode;
  /** true: undo the completed calls before the run ends; false: withdraw that. */
  undo?: boolean | null;
  /** Whether a person or a program asks. */
  source?: "remote" | "user";
}

/** The body of `POST /runs/{id}/tools/{call}/cancel`. */
export interface CancelTool {
  /** The reason, for the model. */
  reason?: string;
}

/** Runs that have not ended, and tokens and money of today (UTC). None where there is no cap. */
export interface CapFigures {
  /** Runs that have not ended. */
  runs: number | null;
  /** Tokens of today. */
  tokens: number | null;
  /** Money of today. */
  cost: string | null;
}

/**
 * A cap that runs of this key count for: of one agent, or of all when `agent` is empty.
 *
 * `shared` says that the runs of all keys count. The figures of the day begin again in `resets_in` seconds.
 */
export interface CapView {
  /** The agent that it is for; empty: all. */
  agent: string;
  /** Whether the runs of all keys count. */
  shared: boolean;
  /** What the cap allows. */
  allowed: CapFigures;
  /** What has been used. */
  used: CapFigures;
  /** Seconds until the figures of the day begin again. */
  resets_in: number;
}

/**
 * Who or what asked for the stop, why, when and how urgently.
 *
 * `at` is wall-clock time; `clock` is a monotonic reading for latencies. `origin` is the first cause up the tree when
 * the request came through a parent token.
 */
export interface Cause {
  /** What asked: user, remote, deadline, limit, parent, disconnect, signal, hook, tool and others. */
  source: "budget" | "caller" | "deadline" | "disconnect" | "guardrail" | "hook" | "parent" | "remote" | "shutdown" | "signal" | "task" | "tool" | "user";
  /** The reason that was given. */
  reason: string;
  /** How urgent the stop is: after_turn, after_tools, now or kill. */
  mode: Mode;
  /** When it was asked for, in seconds since 1970. */
  at: number;
  /** When it was asked for, on the monotonic clock of the run's process. */
  clock: number;
  /** The first cause, when the request came through a parent. */
  origin: Cause | null;
}

/** An event of a run that a tool call of this run started. */
export interface ChildEvent {
  /** Which kind of object this is. */
  type: "child";
  /** The id of the call that started the sub-agent. */
  call_id: string;
  /** The id of the sub-agent's run. */
  run_id: string;
  /** The event of the sub-agent's run. */
  event: AnswerStart | TextDelta | ReasoningDelta | ToolCallStart | ToolCallArguments | ToolCallEnd | ProviderPartDelta | UsageDelta | AnswerEnd | RunStarted | TurnStarted | ModelCallWaiting | ModelCallStarted | ModelCallEnded | RetryScheduled | ToolStarted | ToolProgress | ToolEnded | InterruptRaised | InterruptAnswered | MessageAdded | OutputRejected | HookFailed | StopRequested | Steered | RunPaused | RunResumed | ChildEvent | HandedOff | LateOutcomeRecorded | ContextReduced | SessionRecovered | StoreFailed | EventsDropped | RunEnded;
}

/**
 * The conversation is longer than the agent's `context` allows: `left_out` of its messages are not sent.
 *
 * `summarised` says that a summary stands in their place. The conversation itself keeps them. `tokens_before` and
 * `tokens_after` are estimates of all messages and of those that are sent, without instructions and tools; `source`
 * says what the estimates come from.
 */
export interface ContextReduced {
  /** Which kind of object this is. */
  type: "context_reduced";
  /** How many messages are not sent. */
  left_out: number;
  /** Whether a summary stands in their place. */
  summarised: boolean;
  /** An estimate of all messages, in tokens. */
  tokens_before: number | null;
  /** An estimate of the messages that are sent, in tokens. */
  tokens_after: number | null;
  /** What the estimates come from. */
  source: Provenance | null;
}

/** Money, with its interval. `value` is None, never 0, when nothing is known; `high` is None without a bound. */
export interface Cost {
  /** The best guess; null when nothing is known. */
  value: string | null;
  /** The least that it can be. */
  low: string;
  /** The most that it can be; null without a bound. */
  high: string | null;
  /** The currency. */
  currency: string;
}

/** The one sentence that tells the model that its answer was stopped here. Quiesce wrote it, not the model. */
export interface CutNote {
  /** Which kind of object this is. */
  type: "cut_note";
  /** The text. */
  text: string;
}

/** The usage of one model by one agent on one day (UTC). */
export interface DayUsage {
  /** The day, in UTC. */
  day: string;
  /** The name of the model. */
  model: string;
  /** The usage: each figure with its interval and its source. */
  usage: UsageView;
  /** The agent whose runs these were; empty when that is no longer known. */
  agent: string;
}

/** A file for the model to read: as bytes, by address, or by the id of a file that was uploaded to the provider. */
export interface Document {
  /** Which kind of object this is. */
  type: "document";
  /** The media type of the data. */
  media_type?: string;
  /** The content, in base64. */
  data?: string | null;
  /** The address of the content, instead of data. */
  url?: string | null;
  /** The name of the file. */
  name?: string | null;
  /** The id of a file that was uploaded to the provider, instead of the data. */
  file_id?: string | null;
}

/** Why a request was refused. */
export interface Error {
  /** What went wrong. */
  error: Record<string, unknown>;
}

/** What the `data` of a run's event stream holds. */
export type Event = AnswerStart | TextDelta | ReasoningDelta | ToolCallStart | ToolCallArguments | ToolCallEnd | ProviderPartDelta | UsageDelta | AnswerEnd | RunStarted | TurnStarted | ModelCallWaiting | ModelCallStarted | ModelCallEnded | RetryScheduled | ToolStarted | ToolProgress | ToolEnded | InterruptRaised | InterruptAnswered | MessageAdded | OutputRejected | HookFailed | StopRequested | Steered | RunPaused | RunResumed | ChildEvent | HandedOff | LateOutcomeRecorded | ContextReduced | SessionRecovered | StoreFailed | EventsDropped | RunEnded;

/** The first event of a reader that came too late for the `count` oldest events: the run no longer has them. */
export interface EventsDropped {
  /** Which kind of object this is. */
  type: "events_dropped";
  /** How many events are missing. */
  count: number;
}

/**
 * A number of tokens: the best guess, the interval that holds the truth, and the source.
 *
 * `value` is None, never 0, when nothing is known. `high` is None when there is no upper bound.
 */
export interface Figure {
  /** The best guess; null when nothing is known. */
  value: number | null;
  /** The least that it can be. */
  low: number;
  /** The most that it can be; null without a bound. */
  high: number | null;
  /** Where the figure comes from. */
  source: Provenance;
}

/** A fleet; the freezes that hold come first, then the latest on record. */
export interface FleetView {
  /** The workers. */
  workers: WorkerView[];
  /** The queue of each agent. */
  queues: QueueView[];
  /** The caps that runs of this key count for. */
  caps: CapView[];
  /** The freezes: those that hold, then the latest on record. */
  freezes: FreezeView[];
}

/** A freeze of an agent, or of all when `agent` is empty. It holds until `released_at`. */
export interface FreezeView {
  /** The agent that it is for; empty: all. */
  agent: string;
  /** Why it was made. */
  reason: string;
  /** Who made it. */
  frozen_by: string;
  /** When it was made, in seconds since 1970. */
  frozen_at: number;
  /** When it was released, in seconds since 1970; null while it holds. */
  released_at: number | null;
  /** Who released it. */
  released_by: string;
  /** Why it was released. */
  release_reason: string;
}

/** Another agent continues the conversation, in the same run. */
export interface HandedOff {
  /** Which kind of object this is. */
  type: "handed_off";
  /** The agent before. */
  previous: string;
  /** The agent that continues. */
  agent: string;
}

/** Whether the server accepts new runs. */
export interface Health {
  /** ok, or draining while the server shuts down. */
  status: "draining" | "ok" | "store_unavailable";
  /** The number of active runs. */
  runs: number;
  /** The version of the server. */
  version: string;
  /** Whether runs are executed by workers: `GET /fleet` shows them. */
  fleet: boolean;
}

/** A hook raised. The run goes on. */
export interface HookFailed {
  /** Which kind of object this is. */
  type: "hook_failed";
  /** The name of the hook. */
  hook: string;
  /** The event that the hook was called for. */
  event: string;
  /** What went wrong, as a sentence; null when nothing did. */
  error: string;
}

/**
 * A picture: as bytes, by address, or by the id of a file that was uploaded to the provider.
 *
 * `detail` is how closely OpenAI's models look at it; other providers have no such choice.
 */
export interface Image {
  /** Which kind of object this is. */
  type: "image";
  /** The media type of the data. */
  media_type?: string;
  /** The content, in base64. */
  data?: string | null;
  /** The address of the content, instead of data. */
  url?: string | null;
  /** The id of a file that was uploaded to the provider, instead of the data. */
  file_id?: string | null;
  /** How closely the model looks at it. */
  detail?: "auto" | "high" | "low" | "original" | null;
}

/**
 * A question to a person, asked by or about one tool call, or about a limit.
 *
 * `kind` is `approval` for a tool that must be approved, `question` for what a tool or a hook asked with
 * `interrupt()`, and `limit` for a limit that the run has reached: `reason` then has the keys `limit`, `allowed`,
 * `used` and `message`. `expires_at` is in seconds since the epoch; an answer after that is not accepted.
 *
 * The `arguments` of an approval are those that the tool is called with: coerced, and with the defaults. `preview` is
 * text that shows what the call would do, such as a diff.
 */
export interface Interrupt {
  /** The id, for the answer in `POST /runs/{id}/resume`. */
  id: string;
  /** The name of the question. */
  name: string;
  /** approval, question or limit. */
  kind: "approval" | "limit" | "question";
  /** The id of the tool call. */
  call_id: string;
  /** The name of the tool. */
  tool_name: string;
  /** The arguments of the call, as the tool gets them, with defaults. */
  arguments: Record<string, unknown>;
  /** What is asked; for a limit, the keys limit, allowed, used and message. */
  reason: unknown;
  /** When it was asked, in seconds since 1970. */
  asked_at: number;
  /** When an answer is too late, in seconds since 1970; null: never. */
  expires_at: number | null;
  /** Text that shows what the call would do, such as a diff. */
  preview: string | null;
}

/** An interrupt has its answer, from a person or from an approval that was given in advance. */
export interface InterruptAnswered {
  /** Which kind of object this is. */
  type: "interrupt_answered";
  /** Who has answered, and how. */
  record: AnswerRecord;
}

/** A call waits for a person. The run goes on with the other calls of the turn, and then ends. */
export interface InterruptRaised {
  /** Which kind of object this is. */
  type: "interrupt_raised";
  /** What is asked. */
  interrupt: Interrupt;
}

/** The usage of one key. */
export interface KeyUsage {
  /** The name of the key. */
  key: string;
  /** The last day (UTC) on which it used something; empty without one. */
  last_day: string;
  /** The usage: each figure with its interval and its source. */
  usage: UsageView;
}

/** What became of an abandoned call after the run had ended. */
export interface LateOutcome {
  /** The id of the tool call. */
  call_id: string;
  /** The name of the tool. */
  name: string;
  /** Whether it succeeded. */
  ok: boolean;
  /** More about it, as a sentence. */
  detail: string;
  /** Seconds from the end of the run to the end of the call. */
  after: number;
}

/** An abandoned call has ended while the run was still going on. */
export interface LateOutcomeRecorded {
  /** Which kind of object this is. */
  type: "late_outcome";
  /** What became of the abandoned call. */
  outcome: LateOutcome;
}

/**
 * One request that was sent: what it used, what it cost, and how it ended.
 *
 * `error` names the kind of failure of a request that failed. `provisional` says that better figures may still come:
 * the provider's stream is being read to its end, the request is being looked up, or the vocabulary is being loaded in
 * which it is counted. `supersedes` says that they have come, and that nothing will change any more.
 */
export interface LedgerEntry {
  /** The id of the entry. */
  id: string;
  /** The run's id. */
  run_id: string;
  /** The name of the model. */
  model: string;
  /** The number of the turn, from 1. */
  turn: number;
  /** The number of the try, from 1. */
  attempt: number;
  /** How the request ended. */
  ended: "cancelled_at_provider" | "completed" | "drained" | "draining" | "failed" | "hung_up" | "open";
  /** The usage: each figure with its interval and its source. */
  usage: TokenUsage;
  /** The cost, with its interval; null when no price is known. */
  cost: Cost | null;
  /** The provider's id of the request. */
  request_id: string | null;
  /** The kind of failure of a request that failed. */
  error: string | null;
  /** Whether better figures may still come. */
  provisional: boolean;
  /** Whether these figures are final and replace provisional ones. */
  supersedes: boolean;
}

/** A limit of the run, what it has used of it, and whether that is why it did not go on. */
export interface LimitUse {
  /** The name of the limit. */
  name: string;
  /** What it allows. */
  allowed: string;
  /** What has been used. */
  used: string;
  /** Whether it is why the run did not go on. */
  reached: boolean;
}

/** A message is in the conversation now. */
export interface MessageAdded {
  /** Which kind of object this is. */
  type: "message_added";
  /** The message. */
  message: UserMessage | AssistantMessage | ToolMessage;
}

/**
 * How urgently to stop, from the most patient to the least. Modes compare by urgency.
 *
 * `after_turn`   finish the answer and all its tools, then stop.
 * `after_tools`  cut the model; let tools that already run finish; start no more.
 * `now`          cut the model; each tool gets its declared grace.
 * `kill`         like `now`, with no grace.
 */
export type Mode = "after_tools" | "after_turn" | "kill" | "now";

/** A request has ended, with the ledger's entry for it. */
export interface ModelCallEnded {
  /** Which kind of object this is. */
  type: "model_call_ended";
  /** The request, with its usage. */
  entry: LedgerEntry;
}

/** A request is about to be sent. */
export interface ModelCallStarted {
  /** Which kind of object this is. */
  type: "model_call_started";
  /** The number of the turn, from 1. */
  turn: number;
  /** The number of the try, from 1. */
  attempt: number;
  /** The name of the model. */
  model: string;
}

/** A request is not sent yet: middleware waits for something, such as a rate limit. `reason` says for what. */
export interface ModelCallWaiting {
  /** Which kind of object this is. */
  type: "model_call_waiting";
  /** The number of the turn, from 1. */
  turn: number;
  /** The name of the model. */
  model: string;
  /** What the request waits for. */
  reason: string;
}

/** A body that may be left out, or `{}`. */
export interface Nothing {

}

/** What became of one tool call. Never more than is known to be true. */
export type Outcome = "abandoned" | "cancelled" | "completed" | "killed" | "never_started" | "unknown";

/** The answer did not fit `output_type`; the model is asked again. */
export interface OutputRejected {
  /** Which kind of object this is. */
  type: "output_rejected";
  /** What went wrong, as a sentence; null when nothing did. */
  error: string;
  /** How often the model has been asked again. */
  retry: number;
}

/** The body of `POST /runs/{id}/pause`. */
export interface PauseRun {
  /** Whether the run waits before its next step; false lets it go on. */
  paused?: boolean;
}

/** What a run is doing right now. */
export type Phase = "acting" | "answered" | "backing_off" | "calling" | "created" | "ended" | "settling" | "steering" | "streaming" | "turn_end" | "turn_start" | "waiting";

/** Where a figure comes from, best first. */
export type Provenance = "calibrated" | "counted" | "heuristic" | "partial" | "reported" | "tokenized" | "unknown";

/**
 * Something that only one provider has: a web search and its results, a generated image, citations.
 *
 * `kind` is the provider's name for it, and `data` is what the provider sent. It is sent back unchanged to that
 * provider, and to no other.
 */
export interface ProviderPart {
  /** Which kind of object this is. */
  type: "provider_part";
  /** The provider that has this content. */
  provider: string;
  /** The provider's name for this content. */
  kind: string;
  /** What the provider sent. */
  data: Record<string, unknown>;
}

/** A whole part of the answer that only this provider has: `messages.ProviderPart`. */
export interface ProviderPartDelta {
  /** Which kind of object this is. */
  type: "provider_part";
  /** The provider that has this content. */
  provider: string;
  /** The provider's name for this content. */
  kind: string;
  /** What the provider sent. */
  data: Record<string, unknown>;
}

/** How many runs of an agent, of all keys, wait for a worker, and how many are on one. */
export interface QueueView {
  /** The name of the agent. */
  agent: string;
  /** The runs that wait for a worker. */
  queued: number;
  /** The runs that are on a worker. */
  running: number;
}

/** Thinking that the provider showed. `signature` lets that provider take it back in a later request. */
export interface Reasoning {
  /** Which kind of object this is. */
  type: "reasoning";
  /** The text. */
  text: string;
  /** The provider's signature, which lets it take the reasoning back. */
  signature: string | null;
  /** Whether a stop or an error ended it early. */
  cut: boolean;
  /** What the provider needs to get back with it, unchanged. */
  provider_data: Record<string, unknown> | null;
}

/** More reasoning. A signature, where there is one, comes with the last piece. */
export interface ReasoningDelta {
  /** Which kind of object this is. */
  type: "reasoning";
  /** The text. */
  text: string;
  /** The provider's signature, which lets it take the reasoning back. */
  signature: string | null;
  /** What the provider needs to get back with it, unchanged. */
  provider_data: Record<string, unknown> | null;
}

/**
 * What happened from "stop seen" to "at rest".
 *
 * `cause` is None when the run ended by itself. `phase` is where the stop took effect, `asked_during` where it was
 * asked for: a patient stop waits in between. `latency` is the time in seconds from the request to the end.
 * `still_running` names what could not be proved to have stopped, and background processes that go on while the task
 * waits for a person; empty means that nothing is left. `processes` are all background processes of the task, with how
 * each ended. Late outcomes of abandoned calls are appended to `late` when they land, and what became of each undo to
 * `undo`. `limits` are those of the run, with what it has used; a run that goes on with a task shares them with the
 * earlier runs. `task` sums up all runs of the task so far. `saved` says whether all of the run is in the store of the
 * conversation (None: it has none), and `unsaved` why not: also when the run ended before its session was open, and
 * its prompt was not sent.
 */
export interface Receipt {
  /** The run's id. */
  run_id: string;
  /** Why the run ended. */
  stop_reason: string;
  /** What asked for the stop; null when the run ended by itself. */
  cause: Cause | null;
  /** The most urgent mode that was asked for; null without a stop. */
  mode: Mode | null;
  /** What the run is doing, or was doing when the stop took effect. */
  phase: Phase;
  /** Seconds from the request to the end; null without a stop. */
  latency: number | null;
  /** What became of each tool call. */
  calls: CallReceipt[];
  /** What could not be proved to have stopped. Empty: nothing is left running. */
  still_running: string[];
  /** The usage: each figure with its interval and its source. */
  usage: Usage;
  /** Characters of the answer that was cut, which the conversation keeps. */
  kept_text: number;
  /** The names of the tools that the stop waited for. */
  waited_for: string[];
  /** What the run was doing when the stop was asked for. */
  asked_during: Phase | null;
  /** Whether all of the run is in the store; null without one. */
  saved: boolean | null;
  /** Why not all of it is in the store. */
  unsaved: string;
  /** The limits of the run, with what it has used. */
  limits: LimitUse[];
  /** The sum over all runs of the task so far. */
  task: Task | null;
  /** The background processes of the task, with how each ended. */
  processes: string[];
  /** What became of abandoned calls after the run had ended. */
  late: LateOutcome[];
  /** What became of each undo. */
  undo: UndoReceipt[];
}

/** A receipt; `is_done` when the undo is complete. */
export interface ReceiptAnswer {
  /** The receipt: cause, outcome of every call, what still runs, usage. Null until the run has ended. */
  receipt: Receipt;
  /** Whether the undo is complete. */
  is_done: boolean;
}

/** How an approval counts for later calls of the same tool too, without asking. */
export interface Remember {
  /** For this session, or for all sessions of this key with the agent; these need an end. */
  scope?: "agent" | "session";
  /** Only for calls with such arguments. An argument that is not named may have any value. */
  arguments?: Record<string, ArgumentPattern>;
  /** Seconds until the approval ends. Without it, it lasts as long as the session. */
  expires_in?: number | null;
}

/** The body of `POST /runs/{id}/resume`. */
export interface ResumeRun {
  /** Answers to some or all of the run's interrupts. */
  answers: Answer[];
}

/** A model call failed and will be tried again after `delay` seconds. */
export interface RetryScheduled {
  /** Which kind of object this is. */
  type: "retry_scheduled";
  /** The number of the try, from 1. */
  attempt: number;
  /** The seconds until the next try. */
  delay: number;
  /** What went wrong, as a sentence; null when nothing did. */
  error: string;
}

/** A run. */
export interface RunAnswer {
  /** The run. */
  run: RunView;
}

/** A run that is new or has changed. */
export interface RunChanged {
  /** Which kind of object this is. */
  type: "run";
  /** The run. */
  run: RunView;
}

/** A run with its conversation, and with its receipt once it has ended. */
export interface RunDetail {
  /** The run. */
  run: RunView;
  /** The conversation, the oldest message first. */
  messages: (UserMessage | AssistantMessage | ToolMessage)[];
  /** The receipt: cause, outcome of every call, what still runs, usage. Null until the run has ended. */
  receipt: Receipt | null;
}

/** The run is at rest. Exactly one of these, always the last. */
export interface RunEnded {
  /** Which kind of object this is. */
  type: "run_ended";
  /** Why the run ended. */
  stop_reason: string;
  /** The receipt. */
  receipt: Receipt;
  /** What went wrong, as a sentence; null when nothing did. */
  error: string | null;
  /** The name of the exception. */
  error_type: string | null;
}

/** A run that was deleted. */
export interface RunGone {
  /** Which kind of object this is. */
  type: "gone";
  /** The run's id. */
  id: string;
}

/** Some runs, the newest first. */
export interface RunList {
  /** The runs, the newest first. */
  runs: RunView[];
  /** Give this as `before` to get older runs; null when there are none. */
  next: string | null;
}

/** The run waits before its next step, until `run.resume()` or a stop. */
export interface RunPaused {
  /** Which kind of object this is. */
  type: "run_paused";
}

/** The run goes on after a pause. */
export interface RunResumed {
  /** Which kind of object this is. */
  type: "run_resumed";
}

/** The run holds its conversation; the prompt is in it. `task` is the first run that the same prompt led to. */
export interface RunStarted {
  /** Which kind of object this is. */
  type: "run_started";
  /** The run's id. */
  run_id: string;
  /** The name of the agent. */
  agent: string;
  /** The id of the task. */
  task: string;
}

/**
 * A summary of a run. `mode` and `cause` are those of its stop, if there was one.
 *
 * `task` is the first run that the same prompt led to: runs that go on after an answer have the same. `undoable` names
 * the tools whose calls `POST /runs/{id}/undo` would undo, over all runs of the task. In a fleet, `restarted_as` is
 * the run that goes on after this one's worker was lost or shut down, and `continued_from` the run before this one.
 */
export interface RunView {
  /** The run's id. */
  id: string;
  /** The name of the agent. */
  agent: string;
  /** The name of the session; null without one. */
  session: string | null;
  /** queued, running, stopping, ended or crashed. */
  state: "crashed" | "ended" | "queued" | "running" | "stopping";
  /** What the run is doing, or was doing when the stop took effect. */
  phase: Phase;
  /** Why the run ended; null until it has. */
  stop_reason: string | null;
  /** The text of the prompt, shortened. */
  prompt: string;
  /** When the run was started, in seconds since 1970. */
  created_at: number;
  /** When the run was at rest, in seconds since 1970; null until then. */
  ended_at: number | null;
  /** The mode of the stop; null without one. */
  mode: Mode | null;
  /** What asked for the stop; null when there was none. */
  cause: Cause | null;
  /** The names of the tools that a stop waits for. */
  waiting_for: string[];
  /** What the run asks a person. */
  interrupts: Interrupt[];
  /** The usage: each figure with its interval and its source. */
  usage: UsageView;
  /** The end of the text that the model has written. */
  text_tail: string;
  /** What went wrong, as a sentence; null when nothing did. */
  error: string | null;
  /** What happens when no client reads the events: cancel or continue. */
  on_disconnect: "cancel" | "continue";
  /** The number of the last event. */
  last_event: number;
  /** The names of the tools whose calls an undo would undo. */
  undoable: string[];
  /** The id of the first run of the task. */
  task: string;
  /** The run before this one, of which it is the rest. */
  continued_from: string;
  /** The run that goes on after this one's worker was lost or shut down. */
  restarted_as: string;
  /** Who has answered the approvals and questions that this run went on with, and how. */
  answers: AnswerRecord[];
  /** Whether the run waits, or will wait, before its next step. Not known in a fleet. */
  paused: boolean;
}

/** What the `data` of the stream of changes holds. */
export type RunsChange = RunsListed | RunChanged | RunGone;

/** The current runs, the newest first. Replaces everything sent before. */
export interface RunsListed {
  /** Which kind of object this is. */
  type: "list";
  /** The runs, the newest first. */
  runs: RunView[];
}

/** A session with its conversation and its runs. */
export interface SessionDetail {
  /** The session. */
  session: SessionView;
  /** The conversation, the oldest message first. */
  messages: (UserMessage | AssistantMessage | ToolMessage)[];
  /** The runs, the newest first. */
  runs: RunView[];
}

/** Some sessions, the last used first. */
export interface SessionList {
  /** The sessions, the last used first. */
  sessions: SessionView[];
}

/**
 * The last run of the session, in any process, has crashed. Its torn turn was sealed.
 *
 * `unknown` are the tool calls of which it is not known whether they ran.
 */
export interface SessionRecovered {
  /** Which kind of object this is. */
  type: "session_recovered";
  /** The id of the run that crashed. */
  run_id: string;
  /** The tool calls of which it is not known whether they ran. */
  unknown: ToolCall[];
}

/** The usage of one session with one agent. */
export interface SessionUsage {
  /** The name of the session. */
  session: string;
  /** The agent. */
  agent: string;
  /** How many runs it is the sum of. */
  runs: number;
  /** When the last of them was started, in seconds since the epoch. */
  last_used: number;
  /** The usage: each figure with its interval and its source. */
  usage: UsageView;
}

/** A summary of a session. `run` is the id of the run that uses it. */
export interface SessionView {
  /** The name of the session. */
  name: string;
  /** The agent of its last run. */
  agent: string;
  /** The number of messages. */
  messages: number;
  /** When it was last changed, in seconds since 1970. */
  updated_at: number;
  /** The id of the run that uses it; null when none does. */
  run: string | null;
}

/** An approval that was given in advance. `DELETE /approvals/{id}` takes it back, and so does a later no. */
export interface StandingApproval {
  /** The id of the approval; the record of each call that it approved has it. */
  id: string;
  /** The agent whose tool it is. */
  agent: string;
  /** The tool. */
  tool: string;
  /** The session that it is for; null for all. */
  session: string | null;
  /** What the arguments must be like. */
  arguments: Record<string, ArgumentPattern>;
  /** The key that gave it. */
  by: string;
  /** When it was given, in seconds since the epoch. */
  created_at: number;
  /** When it ends; null when it ends with the session. */
  expires_at: number | null;
  /** The definition of the tool that it was given for. It does not count for another one. */
  definition: string;
}

/** The body of `POST /runs`. `mode` is how the run is stopped when it has no reader. */
export interface StartRun {
  /** The prompt: text, or parts with text, images and documents. */
  prompt: string | (Text | Image | Document | Audio | Video)[];
  /** The name of the agent; the first one of the server without it. */
  agent?: string | null;
  /** The session that the run goes on with, or begins. */
  session?: string | null;
  /** The seconds after which the run is stopped. */
  timeout?: number | null;
  /** What happens when no client reads the events: cancel or continue. */
  on_disconnect?: "cancel" | "continue" | null;
  /** The seconds without a reader before the run is stopped. */
  disconnect_grace?: number | null;
  /** How the run is stopped when it has no reader. */
  mode?: Mode;
  /** What happens when another run uses the session: refuse, or queue. */
  on_busy?: "queue" | "refuse";
}

/** The body of `POST /runs/{id}/steer`. */
export interface SteerRun {
  /** The prompt that the run goes on with. */
  text: string;
}

/** The current work of the run was cut, and `message` is sent instead. The run goes on. */
export interface Steered {
  /** Which kind of object this is. */
  type: "steered";
  /** The message. */
  message: UserMessage;
}

/** The run has seen a request to stop and begins to settle. It is not at rest yet. */
export interface StopRequested {
  /** Which kind of object this is. */
  type: "stop_requested";
  /** What asked for the stop. */
  cause: Cause;
  /** The names of the tools that a stop waits for. */
  waiting_for: string[];
}

/** The session can no longer be saved; the run goes on in memory (`on_store_failure="continue"`). */
export interface StoreFailed {
  /** Which kind of object this is. */
  type: "store_failed";
  /** What went wrong, as a sentence; null when nothing did. */
  error: string;
}

/**
 * A prompt and everything that follows from it: runs that go on after a person's answer, after a stop or a restart.
 *
 * Its runs share one budget, one deadline and one undo. `id` is the id of the first run; `run_ids` has all of them, in
 * order. `used` is what they have used of `limits`, runs of sub-agents included. `timeout` is what they may take
 * together, and `seconds` what those that have ended took: the time that a person takes to answer does not count.
 * `usage` is the sum of their bills.
 */
export interface Task {
  /** The id of the task, which is that of its first run. */
  id: string;
  /** When the task began, in seconds since 1970. */
  started: number;
  /** The ids of its runs, in order. */
  run_ids: string[];
  /** What its runs may use together. */
  limits: Record<string, string>;
  /** What its runs have used of the limits. */
  used: UsedBudget;
  /** The seconds that its runs may take together; null without a limit. */
  timeout: number | null;
  /** The seconds that its ended runs took. The time of a person's answer does not count. */
  seconds: number;
  /** The usage: each figure with its interval and its source. */
  usage: Usage;
  /** Whether the task waits for a person or goes on. */
  is_open: boolean;
}

/** Words. `cut` says that more was coming when the answer was stopped. */
export interface Text {
  /** Which kind of object this is. */
  type: "text";
  /** The text. */
  text: string;
  /** Whether a stop or an error ended it early. */
  cut?: boolean;
  /** What the provider needs to get back with it, unchanged. */
  provider_data?: Record<string, unknown> | null;
}

/** More text of the answer. */
export interface TextDelta {
  /** Which kind of object this is. */
  type: "text";
  /** The text. */
  text: string;
}

/** The tokens of one call or of many. `input` includes the cache fields; `output` includes `reasoning`. */
export interface TokenUsage {
  /** Tokens that were sent, those of the cache included. */
  input: Figure;
  /** Tokens that the model wrote, its reasoning included. */
  output: Figure;
  /** Tokens of the input that the provider read from its cache. */
  cache_read: Figure;
  /** Tokens of the input that the provider wrote to its cache. */
  cache_write: Figure;
  /** Tokens of the output that were reasoning. */
  reasoning: Figure;
}

/** The model asks for a tool. `unparsed` holds what it wrote when that was not a JSON object. */
export interface ToolCall {
  /** Which kind of object this is. */
  type: "tool_call";
  /** The id of the call. */
  id: string;
  /** The name of the tool. */
  name: string;
  /** The arguments. */
  arguments: Record<string, unknown>;
  /** What the model wrote when it was not a JSON object. */
  unparsed: string | null;
  /** What the provider needs to get back with it, unchanged. */
  provider_data: Record<string, unknown> | null;
}

/** More of a call's arguments, as the JSON text that the model writes. */
export interface ToolCallArguments {
  /** Which kind of object this is. */
  type: "tool_call_arguments";
  /** The id of the call. */
  id: string;
  /** The next piece of the JSON text. */
  fragment: string;
}

/** A call is completely written. Only such calls are ever run. */
export interface ToolCallEnd {
  /** Which kind of object this is. */
  type: "tool_call_end";
  /** The id of the call. */
  id: string;
}

/** The model begins to write a call. Calls may interleave. */
export interface ToolCallStart {
  /** Which kind of object this is. */
  type: "tool_call_start";
  /** The id of the call. */
  id: string;
  /** The name of the tool. */
  name: string;
  /** What the provider needs to get back with it, unchanged. */
  provider_data: Record<string, unknown> | null;
}

/** A call has its result, whether or not the tool ran. */
export interface ToolEnded {
  /** Which kind of object this is. */
  type: "tool_ended";
  /** The result. */
  result: ToolResult;
}

/** The results of every call of the assistant message before it, in the order of the calls. */
export interface ToolMessage {
  /** Which kind of object this is. */
  type: "tool";
  /** One result for each call of the message before it. */
  results: ToolResult[];
}

/** A running tool reports. */
export interface ToolProgress {
  /** Which kind of object this is. */
  type: "tool_progress";
  /** The id of the tool call. */
  call_id: string;
  /** The name of the tool. */
  name: string;
  /** What the tool reported: a number from 0 to 1, `done` of a `total`, or anything else. */
  progress: unknown;
}

/** The answer to one `ToolCall`: what the tool returned, or a true sentence about why it returned nothing. */
export interface ToolResult {
  /** Which kind of object this is. */
  type: "tool_result";
  /** The id of the tool call. */
  call_id: string;
  /** The name of the tool. */
  name: string;
  /** What the tool returned, or why it returned nothing. */
  content: (Text | Image | Document | Audio | Video)[];
  /** What became of the call. */
  outcome: Outcome;
  /** Whether the tool failed. */
  is_error: boolean;
  /** The characters of the whole text, when its middle was left out. */
  full_length: number | null;
  /** What an MCP server sent for programs; models do not get it. */
  structured_content: Record<string, unknown> | null;
}

/** A tool is about to run; its first line may not have run yet. */
export interface ToolStarted {
  /** Which kind of object this is. */
  type: "tool_started";
  /** The call. */
  call: ToolCall;
}

/** A tool of an agent and its stop policy. */
export interface ToolView {
  /** The name of the tool. */
  name: string;
  /** What the model is told about the tool. */
  description: string;
  /** What a stop does to a running call: cancel, finish, abandon or kill. */
  on_stop: string;
  /** The seconds that a running call has after a stop. */
  grace: number;
}

/** A turn begins: one model call and the tools it asks for. */
export interface TurnStarted {
  /** Which kind of object this is. */
  type: "turn_started";
  /** The number of the turn, from 1. */
  turn: number;
}

/** What became of the undo of one tool call. */
export interface UndoReceipt {
  /** The id of the tool call. */
  call_id: string;
  /** The name of the tool. */
  name: string;
  /** What became of the undo. */
  outcome: Undone;
  /** More about it, as a sentence. */
  detail: string;
  /** How long it took, in seconds. */
  seconds: number | null;
}

/** What became of one undo. Never more than is known to be true. */
export type Undone = "failed" | "not_undone" | "undone" | "unknown";

/**
 * The sum over the entries of one run's ledger or of many; prints as a plain table.
 *
 * Of an agent that has lived long, `entries` has only the newest, and the sum has all.
 */
export interface Usage {
  /** The number of model calls. */
  calls: number;
  /** The tokens. */
  tokens: TokenUsage;
  /** The cost, with its interval; null when no price is known. */
  cost: Cost | null;
  /** The requests that were sent. */
  entries: LedgerEntry[];
}

/** The usage of all keys, or of one, for an operator: figures, and no text of prompts and answers. */
export interface UsageByKey {
  /** The usage of the keys together. */
  total: UsageView;
  /** By key, the highest cost first. */
  keys: KeyUsage[];
  /** The keys together by day, model and agent. */
  days: DayUsage[];
}

/**
 * What the provider reports as used by this request *so far*: cumulative, never to be added up.
 *
 * A field is None when the provider has not reported it. `input` includes the cache fields, and `output` includes
 * `reasoning`. `final` marks figures that will not change. `server_tools` says that the provider has run tools of its
 * own: each makes it read the conversation again, so that `input` is more than what was sent, and grows until the end.
 */
export interface UsageDelta {
  /** Which kind of object this is. */
  type: "usage";
  /** Tokens that were sent, those of the cache included. */
  input: number | null;
  /** Tokens that the model wrote, its reasoning included. */
  output: number | null;
  /** Tokens of the input that the provider read from its cache. */
  cache_read: number | null;
  /** Tokens of the input that the provider wrote to its cache. */
  cache_write: number | null;
  /** Tokens of the output that were reasoning. */
  reasoning: number | null;
  /** Whether the figures will not change any more. */
  final: boolean;
  /** Whether the provider has run tools of its own. */
  server_tools: boolean;
}

/** The usage of all runs of a key. */
export interface UsageReport {
  /** The usage of all runs of the key. */
  total: UsageView;
  /** The usage by day, model and agent. */
  days: DayUsage[];
  /** By session, the last used first, 200 at most. Only of runs that the server has in memory. */
  sessions: SessionUsage[];
  /** For an operator: the keys of which GET /usage/keys has the usage. Otherwise empty. */
  keys: string[];
}

/** Usage: each figure with its interval and its source. */
export interface UsageView {
  /** The number of model calls. */
  calls: number;
  /** Tokens that were sent, those of the cache included. */
  input: Figure;
  /** Tokens that the model wrote, its reasoning included. */
  output: Figure;
  /** Tokens of the input that the provider read from its cache. */
  cache_read: Figure;
  /** Tokens of the input that the provider wrote to its cache. */
  cache_write: Figure;
  /** Tokens of the output that were reasoning. */
  reasoning: Figure;
  /** The cost, with its interval; null when no price is known. */
  cost: Cost | null;
  /** Whether no figure will change any more. */
  is_final: boolean;
}

/** What a run has used of its limits. */
export interface UsedBudget {
  /** Turns. */
  turns: number;
  /** Tool calls. */
  tool_calls: number;
  /** Tokens that were sent, those of the cache included. */
  input: number;
  /** Tokens that the model wrote, its reasoning included. */
  output: number;
  /** Money. */
  cost: string;
}

/** What the person said. */
export interface UserMessage {
  /** Which kind of object this is. */
  type: "user";
  /** The parts, in order. */
  content: (Text | Image | Document | Audio | Video)[];
}

/** A film for the model to watch. */
export interface Video {
  /** Which kind of object this is. */
  type: "video";
  /** The media type of the data. */
  media_type?: string;
  /** The content, in base64. */
  data?: string | null;
  /** The address of the content, instead of data. */
  url?: string | null;
  /** The name of the file. */
  name?: string | null;
  /** The id of a file that was uploaded to the provider, instead of the data. */
  file_id?: string | null;
}

/** A worker of a fleet. `heartbeat_age` is the time since its last heartbeat, in seconds. */
export interface WorkerView {
  /** The id of the worker. */
  id: string;
  /** Whether it is up, draining or lost. */
  state: "draining" | "lost" | "up";
  /** The agents whose runs it takes. */
  agents: string[];
  /** The runs that it has. */
  running: number;
  /** The runs that it can have at once. */
  capacity: number;
  /** When it was started, in seconds since 1970. */
  started_at: number;
  /** Seconds since its last heartbeat. */
  heartbeat_age: number;
}
