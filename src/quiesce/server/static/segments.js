// The earlier prompts of a session, each with what followed from it and a receipt in one line that opens.

import { client } from "./api.js";
import { retold } from "./conversation.js";
import { h } from "./dom.js";
import { receiptCard } from "./receipt.js";
import { textOf } from "./story.js";
import { ago, cost, duration, stateOf, tokens } from "./words.js";

/** Messages by prompt: [{ messages, runs }]. `runs` are those of the session, in any order; a steer begins no segment. */
export function split(messages, runs) {
  const tasks = byTask(runs);
  const segments = [];
  let next = 0;
  for (const message of messages) {
    const text = message.type === "user" ? textOf(message.content) : null;
    const found = text === null ? -1 : tasks.findIndex((task, index) => index >= next && task.prompt && text.startsWith(task.prompt));
    if (found >= 0) {
      segments.push({ messages: [], runs: tasks[found].runs });
      next = found + 1;
    } else if (!segments.length || (text !== null && !tasks.length)) segments.push({ messages: [], runs: [] });
    segments.at(-1).messages.push(message);
  }
  return segments;
}

function byTask(runs) {
  const tasks = new Map();
  for (const run of [...runs].sort((a, b) => a.created_at - b.created_at)) {
    const key = run.task || run.id;
    if (!tasks.has(key)) tasks.set(key, { prompt: run.prompt, runs: [] });
    tasks.get(key).runs.push(run);
  }
  return [...tasks.values()];
}

/** A segment from messages. */
export function segmentOf({ messages, runs }) {
  return segment(retold("", messages, runs.flatMap((run) => run.answers)).element, runs);
}

/** A conversation with the receipts of its runs. */
export function segment(conversation, runs) {
  conversation.setAttribute("role", "group"); // only the last conversation is a landmark
  conversation.setAttribute("aria-label", "Earlier in this session");
  return h("section", { class: "segment" }, conversation, ...runs.map(brief));
}

/** The receipt of a run in one line. Opened, it is the whole receipt. */
function brief(run) {
  const [word, tone] = run.stop_reason === "interrupt" ? ["Asked you", "good"] : stateOf(run); // the answer is below
  const line = [
    run.ended_at === null ? "" : `${word} after ${duration(run.ended_at - run.created_at)}`,
    run.usage?.calls ? `${tokens(run.usage.output).value} tokens out` : "",
    cost(run.usage?.cost)?.value ?? "",
    ago(run.created_at),
  ];
  const body = h("div", { class: "brief-body" });
  const made = h("details", { class: "brief", "data-run": run.id, "data-tone": tone }, h("summary", {}, h("span", { class: "dot", "aria-hidden": "true" }), line.filter(Boolean).join(" · ")), body);
  made.addEventListener("toggle", () => made.open && !body.childElementCount && open(run, body));
  return made;
}

async function open(run, body) {
  body.append(h("p", { class: "hint" }, "Loading"));
  try {
    const detail = await client.showRun(run.id);
    const link = h("a", { href: `#/runs/${encodeURIComponent(run.id)}` }, "Show this run alone");
    body.replaceChildren(detail.receipt ? receiptCard(detail.receipt, detail.run.error, [], false, "") : "The run left no receipt.", link);
  } catch (error) {
    body.replaceChildren(h("p", { class: "problem" }, error.text ?? String(error)));
  }
}
