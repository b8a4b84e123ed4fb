// The receipt as a card: what the stop did, what it cost, and what is left.

import { h } from "./dom.js";
import { cost, count, DURING, duration, ending, MODE, OUTCOME, tokens, UNDONE, WHO } from "./words.js";

/**
 * The card for a receipt. `actions` are the buttons: [{ id, label, primary, title, run }]. `waits`: an approval is pending.
 * What is in it is folded when all went well, and while a person is asked. `id` is the card's; empty for one of several on a page.
 */
export function receiptCard(receipt, error, actions, waits, id = "receipt") {
  const [ended, tone] = ending(receipt.stop_reason);
  const headline = receipt.stop_reason === "interrupt" ? "So far" : ended; // what it waits for stands above
  const isCrash = receipt.stop_reason === "crashed";
  return h(
    id ? "section" : "div",
    { class: `card receipt ${tone}`, role: id ? null : "group", "aria-label": "Receipt", id: id || null },
    h("h2", { id: id ? `${id}-title` : null }, headline, receipt.latency !== null && receipt.cause ? h("span", { class: "latency" }, ` in ${duration(receipt.latency)}`) : ""),
    error ? h("p", { class: "problem" }, error) : "",
    isCrash ? h("p", {}, "The server ended in the middle of this run. The text so far is kept. A tool that was running may have done its work or not.") : "",
    h(
      "details",
      { class: "receipt-body", open: !["good", "ask"].includes(tone) || !id || stillRunning(receipt).length > 0 || receipt.undo?.length > 0 },
      h("summary", {}, inShort(receipt)),
      receipt.cause ? factList(stopFacts(receipt)) : "",
      receipt.limits?.some((limit) => limit.reached) ? factList([["Limits", receipt.limits.map(limitText).join(", ")]]) : "",
      factList([...usageFacts(receipt.usage), ...taskFacts(receipt.task), ...(receipt.processes?.length ? [["Processes", receipt.processes.join("; ")]] : [])]),
      receipt.calls.length ? tools(receipt.calls, waits) : "",
      receipt.undo?.length ? undone(receipt.undo) : "",
      left(receipt),
      receipt.late?.length ? late(receipt.late) : "",
    ),
    actions.length ? h("div", { class: "row actions" }, ...actions.map(button)) : "",
  );
}

/** The receipt in one line. */
function inShort(receipt) {
  const { usage, calls } = receipt;
  if (!usage.calls) return "Receipt";
  const parts = [`${tokens(usage.tokens.input).value} tokens in`, `${tokens(usage.tokens.output).value} out`, cost(usage.cost)?.value ?? ""];
  if (calls.length) parts.push(`${count(calls.length)} ${calls.length === 1 ? "tool call" : "tool calls"}`);
  return parts.filter(Boolean).join(" · ");
}

/** The card for a run that left no receipt, because its process ended before it could. */
export function lostCard(actions) {
  return h(
    "section",
    { class: "card receipt bad", "aria-labelledby": "receipt-title", id: "receipt" },
    h("h2", { id: "receipt-title" }, "Crashed"),
    h("p", {}, "The server ended in the middle of this run. The text so far is kept; what its tools were doing, and what it cost, is not known."),
    h("div", { class: "row actions" }, ...actions.map(button)),
  );
}

function factList(rows) {
  return h("dl", { class: "facts" }, ...rows.map(([name, ...value]) => h("div", { "data-fact": name }, h("dt", {}, name), h("dd", {}, ...value))));
}

/** What the stop was and did. */
function stopFacts(receipt) {
  const cause = receipt.cause;
  const first = cause.origin ?? cause;
  const rows = [
    ["Cause", WHO[first.source] ?? String(first.source), cause.reason ? h("span", { class: "reason" }, `“${cause.reason}”`) : ""],
    ["When", when(receipt)],
    ["At rest", receipt.latency === null ? "not measured" : `${duration(receipt.latency)} after the request`, h("span", { class: "note" }, `mode: ${MODE[receipt.mode] ?? receipt.mode}`)],
  ];
  if (receipt.waited_for.length) rows.push(["Waited for", receipt.waited_for.join(", ")]);
  if (receipt.kept_text) rows.push(["Kept", `${count(receipt.kept_text)} characters of the answer that was cut`]);
  return rows;
}

/** A limit of the run, and what was used of it when it was reached. */
function limitText(limit) {
  const name = limit.name.replaceAll("_", " ");
  return limit.reached ? `${name} ${limit.used} of ${limit.allowed} (reached)` : `${name} ${limit.allowed}`;
}

/** All runs that followed from the same prompt, when there are several. */
function taskFacts(task) {
  if (!task || task.run_ids.length < 2) return [];
  const { turns, tool_calls: calls } = task.used;
  const used = `${count(turns)} ${turns === 1 ? "turn" : "turns"} and ${count(calls)} ${calls === 1 ? "tool call" : "tool calls"} in ${duration(task.seconds)}`;
  const money = cost(task.usage.cost);
  return [["Whole task", `${task.run_ids.length} runs: ${used}`], ...(money ? [["Task cost", ...figure(money)]] : [])];
}

/** What the run used. */
function usageFacts(usage) {
  if (!usage.calls) return [["Tokens", "none: the model was never called"]];
  const money = cost(usage.cost);
  return [
    ["Tokens in", ...figure(tokens(usage.tokens.input))],
    ["Tokens out", ...figure(tokens(usage.tokens.output))],
    ["Cost", ...(money ? figure(money) : ["not known", h("span", { class: "note" }, "no price is set for this model")])],
  ];
}

/** A figure with a badge that says how sure it is, and its interval. */
export function figure(known) {
  return [
    h("span", { class: "value" }, known.value),
    h("span", { class: `badge ${known.sure}`, title: known.source ?? "" }, known.sure),
    known.interval ? h("span", { class: "note" }, known.interval) : "",
  ];
}

function when(receipt) {
  const effect = DURING[receipt.phase] ?? String(receipt.phase);
  const asked = receipt.asked_during ? DURING[receipt.asked_during] : null;
  if (!asked || asked === effect || receipt.mode === "now" || receipt.mode === "kill") return effect;
  return `asked for ${asked}, took effect ${effect}`;
}

function tools(calls, waits) {
  return h(
    "div",
    { class: "receipt-tools" },
    h("h3", {}, "Tools"),
    h("ul", {}, ...grouped(calls, waits).map(({ call, times, seconds }) =>
      h("li", { "data-outcome": call.waits && waits ? "waiting" : call.ok || call.outcome !== "completed" ? call.outcome : "failed" },
        h("span", { class: "tool-dot", "aria-hidden": "true" }),
        h("span", { class: "tool-name" }, times > 1 ? `${call.name} x${times}` : call.name),
        h("span", {}, outcome(call, waits)),
        h("span", { class: "note" }, seconds === null ? "" : duration(seconds))))),
  );
}

/** Calls in a row of one tool with the same outcome share a line: search x25. */
function grouped(calls, waits) {
  const groups = [];
  for (const call of calls) {
    const last = groups.at(-1);
    if (last?.call.name === call.name && last.call.ok === call.ok && outcome(last.call, waits) === outcome(call, waits)) {
      last.times += 1;
      last.seconds = call.seconds === null ? last.seconds : (last.seconds ?? 0) + call.seconds;
    } else groups.push({ call, times: 1, seconds: call.seconds });
  }
  return groups;
}

function undone(each) {
  return h(
    "div",
    { class: "receipt-tools", id: "undone" },
    h("h3", {}, "Undo"),
    h("ul", {}, ...each.map((one) =>
      h("li", { "data-outcome": one.outcome === "undone" ? "completed" : one.outcome === "failed" ? "failed" : "unknown" },
        h("span", { class: "tool-dot", "aria-hidden": "true" }),
        h("span", { class: "tool-name" }, one.name),
        h("span", {}, UNDONE[one.outcome] ?? String(one.outcome)),
        h("span", { class: "note" }, one.detail ?? "")))),
  );
}

function outcome(call, waits) {
  if (call.waits) return waits ? "waits for you" : "asked, and no longer waits here";
  const word = OUTCOME[call.outcome] ?? String(call.outcome);
  return call.ok || call.outcome !== "completed" ? word : `${word} with an error`;
}

/** What may still be running: the abandoned calls without a late outcome. */
export function stillRunning(receipt) {
  const ended = receipt.late ?? [];
  return receipt.still_running.filter((each) => !ended.some((late) => each.includes(`(${late.call_id})`)));
}

function left(receipt) {
  const running = stillRunning(receipt);
  if (running.length) {
    return h("p", { class: "left warn" }, h("strong", {}, "Still running: "), running.join(", "), receipt.stop_reason === "interrupt" ? ", until the task ends." : ". It could not be proved to have stopped.");
  }
  const unknown = receipt.calls.filter((call) => call.outcome === "unknown").map((call) => call.name);
  if (receipt.stop_reason === "crashed") {
    return h("p", { class: "left warn" }, unknown.length ? `It is not known what became of ${unknown.join(", ")}.` : "It is not known whether something is left running.");
  }
  return h("p", { class: "left" }, "Nothing is left running.");
}

function late(outcomes) {
  return h("ul", { class: "late" }, ...outcomes.map((each) => h("li", {}, `${each.name} ${each.ok ? "finished" : "failed"} ${duration(each.after)} after the end.`)));
}

function button(action) {
  return h("button", { type: "button", id: `action-${action.id}`, class: action.primary ? "primary" : "", title: action.title, on: { click: action.run } }, action.label);
}
