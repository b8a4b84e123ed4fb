// Figures and states in plain words. Nothing here rounds an uncertain number into a certain one.

const number = new Intl.NumberFormat("en");
const ESTIMATED = {
  partial: "reported so far, when it was cut",
  counted: "counted by the provider",
  tokenized: "estimated with the model's own vocabulary",
  calibrated: "estimated from this model's earlier calls",
  heuristic: "estimated from the length of the text",
};

/** The certainty of a figure: reported, estimated or unknown. */
export function certainty(figure) {
  if (!figure || figure.value === null || figure.source === "unknown") return "unknown";
  return figure.source === "reported" ? "reported" : "estimated";
}

/** A figure of tokens as { value, sure, interval, source }. */
export function tokens(figure) {
  const sure = certainty(figure);
  if (sure === "reported") return { value: number.format(figure.value), sure, interval: "", source: "by the provider" };
  const low = figure?.low ?? 0;
  if (sure === "unknown") {
    return { value: low ? `at least ${number.format(low)}` : "unknown", sure, interval: "", source: "not reported" };
  }
  const interval =
    figure.high === null ? `${number.format(low)} or more` : `${number.format(low)} to ${number.format(figure.high)}`;
  return { value: `about ${number.format(figure.value)}`, sure, interval, source: ESTIMATED[figure.source] ?? "estimated" };
}

/** A cost as { value, sure, interval }; null without a price. Money comes as decimal text, and stays exact. */
export function cost(given) {
  if (!given) return null;
  const low = money(given.low, given.currency);
  if (given.value === null) {
    return { value: Number(given.low) ? `at least ${low}` : "unknown", sure: "unknown", interval: "" };
  }
  const value = money(given.value, given.currency);
  if (given.high !== null && Number(given.low) === Number(given.high)) return { value, sure: "reported", interval: "" };
  const interval = given.high === null ? `${low} or more` : `${low} to ${money(given.high, given.currency)}`;
  return { value: `about ${value}`, sure: "estimated", interval };
}

/** The sum of some costs, as `cost` shows one; null when none has a price. */
export function sumCost(costs) {
  const known = costs.filter(Boolean);
  if (!known.length) return null;
  const sum = { value: 0, low: 0, high: 0, currency: known[0].currency };
  for (const each of known) {
    sum.low += Number(each.low);
    sum.value = sum.value === null || each.value === null ? null : sum.value + Number(each.value);
    sum.high = sum.high === null || each.high === null ? null : sum.high + Number(each.high);
  }
  if (known.length < costs.length) [sum.value, sum.high] = [null, null];
  return cost(sum);
}

export function money(amount, currency) {
  const value = Number(amount);
  const digits = value !== 0 && Math.abs(value) < 0.1 ? 4 : 2;
  try {
    return new Intl.NumberFormat("en", { style: "currency", currency, minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value);
  } catch {
    return `${value.toFixed(digits)} ${currency}`;
  }
}

export function count(value) {
  return number.format(value);
}

/** A duration as text. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 0.001) return "under 1 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  return whole < 3600 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** How long ago, roughly. */
export function ago(at, now = Date.now() / 1000) {
  const seconds = Math.max(0, now - at);
  if (seconds < 10) return "just now";
  if (seconds < 60) return `${Math.floor(seconds / 10) * 10} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return new Date(at * 1000).toLocaleDateString("en", { day: "numeric", month: "short", year: "numeric" });
}

/** A time of day; with the date unless it is today. */
export function clock(at) {
  const when = new Date(at * 1000);
  const time = when.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  if (when.toDateString() === new Date().toDateString()) return time;
  return `${when.toLocaleDateString("en", { day: "numeric", month: "short", year: "numeric" })}, ${time}`;
}

/** The owner of an API key, as part of a sentence. A server without keys has one owner, who is on its machine. */
export function byKey(owner) {
  return owner && owner !== "local" ? ` by key ${owner}` : " on this machine";
}

const DECIDED = { approved: "Approved", denied: "Denied", answered: "Answered" };

/** Who has answered what a call asked, and when. */
export function answeredWords(record) {
  const how = record.standing ? " in advance" : record.arguments ? " with other arguments" : "";
  const words = `${DECIDED[record.decision] ?? record.decision}${how}${byKey(record.by)}, ${clock(record.at)}`;
  return record.reason ? `${words}: ${record.reason}` : words;
}

export const WHO = {
  user: "A person",
  deadline: "Its time limit was reached",
  budget: "Its budget was used up",
  disconnect: "No client was connected",
  signal: "The process got a signal",
  parent: "The run that started it was stopped",
  shutdown: "The server is shutting down",
  remote: "Another program",
  hook: "A hook",
  tool: "One of its tools",
  caller: "The task around it was cancelled",
};

export const DURING = {
  created: "before anything was sent",
  waiting: "before its turn had come",
  turn_start: "between two model calls",
  calling: "while waiting for the model",
  streaming: "while the model was answering",
  backing_off: "while waiting to retry the model",
  answered: "after the answer, before its tools",
  acting: "while tools were running",
  turn_end: "after the tools",
  steering: "while it was being steered",
};

export const OUTCOME = {
  never_started: "never started",
  completed: "completed",
  cancelled: "cancelled while running",
  killed: "killed",
  abandoned: "abandoned, may still be running",
  unknown: "unknown",
};

export const UNDONE = {
  undone: "undone",
  failed: "the undo failed",
  not_undone: "not undone",
  unknown: "not known whether it is undone",
};

export const MODE = {
  after_turn: "after the turn",
  after_tools: "after the tools",
  now: "now",
  kill: "forced",
};

const ENDED = {
  end_turn: ["Finished", "good"],
  stop_sequence: ["Finished", "good"],
  max_tokens: ["Cut at its length limit", "warn"],
  refusal: ["Refused", "warn"],
  pause: ["Paused by the provider", "warn"],
  interrupt: ["Waiting for you", "ask"],
  steered: ["Sent in another run", "good"],
  cancelled: ["Stopped", "stopped"],
  limit: ["Stopped at a limit", "stopped"],
  error: ["Failed", "bad"],
  crashed: ["Crashed", "bad"],
};

/** The text and the colour for the end of a run. */
export function ending(reason) {
  return ENDED[reason] ?? ["Ended", "good"];
}

/** The text and the colour for a run's state in a list. */
export function stateOf(run) {
  if (run.state === "ended" && run.stop_reason === "interrupt" && !run.interrupts.length) return ["No longer waiting", "stopped"];
  if (run.state === "ended") return ending(run.stop_reason);
  return { queued: ["Queued", "idle"], running: ["Running", "live"], stopping: ["Stopping", "stopping"], crashed: ["Crashed", "bad"] }[run.state] ?? [String(run.state), "idle"];
}
