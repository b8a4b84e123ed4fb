// A conversation as a file: markdown to read, or JSON as the server has it.

import { client } from "./api.js";
import { h, pretty } from "./dom.js";
import { textOf } from "./story.js";
import { answeredWords } from "./words.js";

/** Save the conversation of a run, or of its session, as "markdown" or "json". */
export async function exportAs(kind, run) {
  const whole = run.session ? await client.showSession(run.session) : await client.showRun(run.id);
  const name = `${run.session ?? run.id}.${kind === "json" ? "json" : "md"}`;
  save(name, kind === "json" ? JSON.stringify(whole, null, 2) : markdownOf(whole), kind === "json" ? "application/json" : "text/markdown");
}

function save(name, text, type) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** The messages for people: prompts, answers as the model wrote them, and the tools with what they were given and gave back. */
export function markdownOf({ messages, runs, run }) {
  const records = new Map([...(runs ?? []), ...(run ? [run] : [])].flatMap((each) => each.answers).map((record) => [record.call_id, record]));
  return messages.flatMap((message) => parts(message, records)).join("\n\n") + "\n";
}

function parts(message, records) {
  if (message.type === "user") return ["## You", textOf(message.content)];
  if (message.type === "tool") return message.results.map((result) => [`### Result of ${result.name}`, fenced(textOf(result.content))].join("\n\n"));
  return ["## Agent", ...message.content.map((part) => partOf(part, records)).filter(Boolean)];
}

function partOf(part, records) {
  if (part.type === "tool_call") {
    const record = records.get(part.id);
    return [`### Tool ${part.name}`, ...(record ? [`*${answeredWords(record)}*`] : []), fenced(pretty(part.arguments), "json")].join("\n\n");
  }
  if (part.type === "reasoning") return part.text ? part.text.replace(/^/gm, "> ") : "";
  if (part.type === "cut_note") return `*${part.text}*`;
  return part.text ?? "";
}

/** A text as a block of code, whatever it contains. */
function fenced(text, language = "") {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([marks]) => marks.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${text}\n${fence}`;
}
