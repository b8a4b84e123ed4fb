// The state of a run from its events: the conversation, the tools, and the times for the timeline.
// Independent of the page. `changed` collects what a view has to draw again.

import { answeredWords, sumCost } from "./words.js";

const BYTES_PER_TOKEN = 4;
const utf8 = new TextEncoder();

/** One run, built from its events. */
export class Story {
  constructor() {
    this.entries = []; // the conversation, in order: { kind: "user" | "assistant" | "notice", ... }
    this.tools = new Map(); // by call id
    this.calls = []; // model calls, for the picture: { turn, attempt, model, from, to, ended, cut }
    this.tokens = []; // output so far, for the picture: { at, total }
    this.marks = []; // steering and the like: { at, text }
    this.interrupts = [];
    this.records = new Map(); // who has answered what a call asked, by call id
    this.messages = []; // as they were added, for those who need the exact words
    this.startedAt = null;
    this.lastAt = null;
    this.stop = null; // { cause, waitingFor, at }
    this.end = null; // the run_ended event, with `at`
    this.turn = 0;
    this.gap = false;
    this.timeless = false;
    this.isBelow = false; // what came before is on the same page
    this.paused = false;
    this.retry = null;
    this.model = "";
    this.ledger = new Map(); // the entries of finished model calls, by id
    this.reported = null; // the provider's last report about the running one
    this.changed = new Set();
    this.settledTokens = 0;
    this.bytes = 0;
    this.answer = null;
  }

  /** What was used so far, by the runs that tools started too: reported input, the output as in the timeline, and the cost of finished model calls. */
  get used() {
    const stories = this.family();
    const entries = stories.flatMap((story) => [...story.ledger.values()]);
    const sum = (figure) => stories.reduce((total, story) => total + figure(story), 0);
    const input = entries.reduce((total, entry) => total + (entry.usage?.input?.value ?? 0), sum((story) => story.reported?.input ?? 0));
    return { input, output: sum((story) => story.tokens.at(-1)?.total ?? 0), spent: sumCost(entries.map((entry) => entry.cost)) };
  }

  /** This story and those of the runs that its tools started. */
  family() {
    return [this, ...[...this.tools.values()].flatMap((tool) => tool.child?.story.family() ?? [])];
  }

  get prompt() {
    const first = this.messages.find((message) => message.type === "user");
    return first ? textOf(first.content) : "";
  }

  get runningTools() {
    return [...this.tools.values()].filter((tool) => tool.state === "running");
  }

  /** What the run is doing, in a few words. */
  get doing() {
    const running = this.runningTools.map((tool) => tool.name);
    if (this.paused) return "Paused";
    if (running.length) return `Running ${running.join(", ")}`;
    if (this.retry) return "Waiting to ask the model again";
    const call = this.calls.at(-1);
    if (call && call.to === null) return this.answer?.blocks.length ? "Answering" : "Waiting for the model";
    return "Working";
  }

  /** Add an event. `at` is null when its time is not known; then there is no timeline. */
  apply(event, at) {
    this.timeless ||= at === null;
    at ??= this.lastAt ?? 0;
    this.lastAt = at;
    this.startedAt ??= at;
    HANDLERS[event.type]?.call(this, event, at);
  }

  entry(entry) {
    this.entries.push(entry);
    this.changed.add(entry);
    return entry;
  }

  notice(text, tone = "plain") {
    return this.entry({ kind: "notice", text, tone });
  }

  /** The answer that is being written. */
  writing() {
    this.answer ??= this.entry({ kind: "assistant", blocks: [], cut: false, done: false });
    return this.answer;
  }

  /** The last block of the answer if it has this kind, else a new one. */
  block(kind) {
    const answer = this.writing();
    let block = answer.blocks.at(-1);
    if (block?.kind !== kind) {
      block = { kind, text: "", cut: false };
      answer.blocks.push(block);
    }
    this.changed.add(answer);
    return block;
  }

  tool(id, name) {
    let tool = this.tools.get(id);
    if (!tool) {
      tool = { kind: "tool", id, name, written: "", arguments: null, state: "asked", progress: null, result: null, from: null, to: null, child: null, call: this.calls.length - 1, record: null };
      this.tools.set(id, tool);
      const answer = this.writing();
      answer.blocks.push(tool);
    }
    tool.record ??= this.records.get(id) ?? null;
    tool.home ??= this.answer ?? this.writing();
    this.changed.add(tool.home);
    return tool;
  }

  /** Nothing more happens. Of a call without a result it is not known what became of it: so it is after a crash. */
  rest(at) {
    for (const call of this.calls) call.to ??= at;
    for (const tool of this.tools.values()) {
      if (tool.state === "running") {
        tool.to = at;
        tool.state = "unknown";
      } else if (tool.state === "asked") tool.state = "never_started";
      this.changed.add(tool.home);
    }
    for (const entry of this.entries) if (entry.kind === "assistant" && !entry.done) settleEntry(this, entry);
  }

  /** The run that follows has the answers: nothing of this one waits any more. */
  answered() {
    for (const tool of this.tools.values()) {
      if (tool.state !== "waiting") continue;
      tool.state = "answered";
      this.changed.add(tool.home);
    }
  }

  grow(text, at) {
    this.bytes += utf8.encode(text).length;
    const total = this.settledTokens + Math.ceil(this.bytes / BYTES_PER_TOKEN);
    const last = this.tokens.at(-1);
    if (last?.growing && at - last.at < 0.02) last.total = total;
    else this.tokens.push({ at, total, growing: true });
  }
}

const HANDLERS = {
  run_started(event, at) {
    this.startedAt = at;
  },
  turn_started(event) {
    this.turn = event.turn;
  },
  model_call_started(event, at) {
    this.retry = null;
    this.model = event.model;
    this.answer = null;
    this.bytes = 0;
    this.tokens.push({ at, total: this.settledTokens });
    this.calls.push({ turn: event.turn, attempt: event.attempt, model: event.model, from: at, to: null, ended: "open" });
  },
  usage(event) {
    this.reported = event;
  },
  model_call_ended(event, at) {
    const call = this.calls.at(-1);
    const entry = event.entry;
    this.ledger.set(entry.id, entry);
    this.reported = null;
    const known = this.calls.find((each) => each.entry?.id === entry.id);
    if (known) known.entry = entry; // better figures of an earlier call
    if (entry.supersedes || !call) return;
    call.to = at;
    call.ended = entry.ended;
    call.entry = entry;
    const output = entry.usage?.output;
    this.settledTokens += output?.value ?? Math.ceil(this.bytes / BYTES_PER_TOKEN);
    this.bytes = 0;
    this.tokens.push({ at, total: this.settledTokens });
  },
  text(event, at) {
    this.block("text").text += event.text;
    this.grow(event.text, at);
  },
  reasoning(event, at) {
    if (event.text) this.block("reasoning").text += event.text;
    this.grow(event.text, at);
  },
  provider_part(event) {
    const answer = this.writing();
    appendBlock(answer, "provider_part").text = `[${event.kind}]`;
    this.changed.add(answer);
  },
  tool_call_start(event) {
    this.tool(event.id, event.name);
  },
  tool_call_arguments(event, at) {
    const tool = this.tools.get(event.id);
    if (!tool) return;
    tool.written += event.fragment;
    this.changed.add(tool.home);
    this.grow(event.fragment, at);
  },
  tool_started(event, at) {
    const tool = this.tool(event.call.id, event.call.name);
    tool.arguments = event.call.arguments;
    tool.state = "running";
    tool.from = at;
  },
  tool_progress(event) {
    const tool = this.tool(event.call_id, event.name);
    tool.progress = event.progress;
  },
  tool_ended(event, at) {
    settleTool(this.tool(event.result.call_id, event.result.name), event.result, at);
  },
  child(event, at) {
    const tool = this.tools.get(event.call_id);
    if (!tool) return;
    tool.child ??= { run: event.run_id, story: new Story() };
    tool.child.story.apply(event.event, this.timeless ? null : at);
    tool.child.story.changed.clear();
    this.changed.add(tool.home);
  },
  retry_scheduled(event) {
    this.retry = event;
    this.notice(`The model call failed: ${event.error} It is tried again in ${event.delay.toFixed(1)} s.`, "warn");
  },
  model_call_waiting(event) {
    this.notice(`The model call waits for ${event.reason}.`, "warn");
  },
  output_rejected(event) {
    this.notice(`The answer did not have the form that was asked for, and the model is asked again: ${event.error}`, "warn");
  },
  hook_failed(event) {
    this.notice(`The hook ${event.hook} failed: ${event.error} The run goes on.`, "warn");
  },
  message_added(event) {
    const message = event.message;
    this.messages.push(message);
    if (message.type === "user") {
      this.entry({ kind: "user", content: message.content });
      this.answer = null;
    } else if (message.type === "assistant") {
      settleAnswer(this, message);
    } else {
      for (const result of message.results) settleTool(this.tool(result.call_id, result.name), result, null);
    }
  },
  steered(event, at) {
    this.marks.push({ at, text: "steered" });
    this.notice("You steered the run: what it was doing was stopped, and it goes on with this.", "steer");
  },
  handed_off(event, at) {
    this.marks.push({ at, text: event.agent });
    this.notice(`${event.previous} handed over to ${event.agent}.`);
  },
  run_paused() {
    this.paused = true;
  },
  run_resumed() {
    this.paused = false;
  },
  interrupt_raised(event) {
    this.interrupts.push(event.interrupt);
    const tool = this.tools.get(event.interrupt.call_id);
    if (tool) {
      tool.state = "waiting";
      this.changed.add(tool.home);
    }
  },
  interrupt_answered({ record }) {
    this.records.set(record.call_id, record);
    if (this.tools.has(record.call_id)) {
      const tool = this.tool(record.call_id);
      tool.record = record;
      if (tool.state === "waiting") tool.state = "answered";
    } else if (record.tool_name === "" || record.interrupt_id.startsWith("limit")) this.notice(answeredWords(record), "steer");
  },
  stop_requested(event, at) {
    this.stop = { cause: event.cause, waitingFor: event.waiting_for ?? [], at: event.cause.at ?? at };
  },
  late_outcome(event) {
    this.notice(`${event.outcome.name}, which had been given up, ${event.outcome.ok ? "finished" : "failed"} after all.`);
  },
  run_ended(event, at) {
    this.end = { ...event, at };
    const used = event.receipt?.usage?.tokens?.output?.value;
    if (typeof used === "number" && this.calls.length) this.tokens.push({ at, total: used }); // as on the receipt
    this.rest(at);
  },
  gap() {
    this.gap = true;
    this.notice("The beginning of this run is no longer kept in full.", "warn");
  },
};

function settleEntry(story, entry) {
  entry.done = true;
  story.changed.add(entry);
}

function settleTool(tool, result, at) {
  tool.result = result;
  tool.state = result.outcome;
  if (at !== null) tool.to ??= at;
}

/** Replace the streamed text by the message of the conversation. */
function settleAnswer(story, message) {
  const onlyNote = message.content.every((part) => part.type === "cut_note");
  if (onlyNote) {
    for (const part of message.content) story.notice(part.text, "cut");
    return;
  }
  const answer = story.answer ?? story.writing();
  if (!answer.blocks.length) layOut(story, answer, message.content);
  const said = (kind) => answer.blocks.filter((block) => block.kind === kind);
  for (const kind of ["text", "reasoning", "provider_part"]) {
    const parts = message.content.filter((part) => part.type === kind);
    const blocks = said(kind);
    if (!blocks.length && story.isBelow && !story.prompt) continue; // it is above, where the call was asked about
    parts.forEach((part, index) => {
      const block = blocks[index] ?? insertBlock(answer, kind);
      block.text = part.text ?? `[${part.kind}]`;
      block.cut = part.cut;
    });
  }
  for (const part of message.content) {
    if (part.type === "tool_call") story.tool(part.id, part.name).arguments = part.arguments;
    if (part.type === "cut_note") answer.note = part.text;
  }
  answer.cut = message.cut;
  answer.done = true;
  story.changed.add(answer);
  story.answer = null;
}

/** The blocks of an answer that was not streamed to this page, in order. */
function layOut(story, answer, content) {
  story.answer = answer;
  for (const part of content) {
    if (part.type === "tool_call") story.tool(part.id, part.name);
    else if (part.type !== "cut_note") appendBlock(answer, part.type);
  }
}

/** A block before the tools: they are known first when a run goes on with calls that waited. */
function insertBlock(answer, kind) {
  const block = { kind, text: "", cut: false };
  const place = answer.blocks.findIndex((each) => each.kind === "tool");
  answer.blocks.splice(place < 0 ? answer.blocks.length : place, 0, block);
  return block;
}

function appendBlock(answer, kind) {
  const block = { kind, text: "", cut: false };
  answer.blocks.push(block);
  return block;
}

/** The words of some content, without what is attached. */
export function wordsOf(content) {
  return content.filter((part) => part.type === "text").map((part) => part.text).join("");
}

export function textOf(content) {
  return content.map((part) => (part.type === "text" ? part.text : `[${part.name ?? part.media_type ?? part.type}]`)).join("");
}

/** A finished conversation, for the messages before this run; `records` say who has answered what its calls asked. */
export function retell(messages, records = []) {
  const story = new Story();
  for (const record of records) story.records.set(record.call_id, record);
  for (const message of messages) story.apply({ type: "message_added", message }, 0);
  for (const entry of story.entries) entry.done = true;
  return story;
}

/** The prompt of a run: from its events, or from the conversation when the view has only its first characters. */
export function askedAtFirst(run, story, snapshot) {
  const isUser = (message) => message.type === "user";
  return story.messages.find(isUser) ?? snapshot.findLast((message) => isUser(message) && textOf(message.content).startsWith(run.prompt));
}

/** The messages of a snapshot that were there before this run: all, if the run is younger than the snapshot. */
export function before(messages, story, over) {
  const first = story.messages[0];
  if (!first) return over ? [] : messages;
  const wanted = JSON.stringify(first);
  const place = messages.findLastIndex((message) => JSON.stringify(message) === wanted);
  return place < 0 ? (over ? [] : messages) : messages.slice(0, place);
}
