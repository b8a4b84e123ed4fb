// Changes to files, as coloured lines.

import { h } from "./dom.js";

const MOST = 2000; // lines

/** Whether a text is a unified diff. */
export function isDiff(text) {
  return /^(diff |--- |Index: )/.test(text) && /^\+\+\+ /m.test(text) && /^@@/m.test(text);
}

/** The lines of a diff. */
export function diffNode(text, name) {
  const lines = text.split("\n");
  const shown = lines.slice(0, MOST);
  const rest = lines.length - shown.length;
  return h("pre", { class: "diff", tabindex: 0, dir: "ltr", role: "group", "aria-label": name }, ...shown.map((line, index) => {
    const whole = index < shown.length - 1 ? `${line}\n` : line;
    const kind = kindOf(line);
    return kind ? h("span", { class: kind }, whole) : whole;
  }), rest ? `\n… ${rest} more lines` : "");
}

function kindOf(line) {
  if (/^(\+\+\+|---|@@|diff |Index: )/.test(line)) return "diff-head";
  return { "+": "diff-added", "-": "diff-removed" }[line[0]] ?? "";
}

const PAIRS = [["old", "new"], ["old_string", "new_string"], ["old_str", "new_str"], ["old_text", "new_text"]];

/** What a call would change, from its arguments: a diff for each replacement of text by other text. */
export function changesOf(given, name) {
  const edits = Array.isArray(given.edits) ? given.edits : [given];
  const changes = edits.map((edit) => {
    const pair = PAIRS.find((names) => names.every((each) => typeof edit?.[each] === "string"));
    return pair && replacement(edit[pair[0]], edit[pair[1]]);
  });
  if (!changes.length || !changes.every(Boolean)) return [];
  const path = given.path ?? given.file_path ?? given.file;
  const head = typeof path === "string" ? `--- ${path}\n+++ ${path}\n` : "";
  return [diffNode(`${head}${changes.join("\n")}`, name)];
}

/** The lines that both have at the beginning and at the end are context; what is between was replaced. */
function replacement(old, next) {
  const before = old.split("\n");
  const after = next.split("\n");
  let head = 0;
  while (head < Math.min(before.length, after.length) && before[head] === after[head]) head += 1;
  let tail = 0;
  while (tail < Math.min(before.length, after.length) - head && before.at(-1 - tail) === after.at(-1 - tail)) tail += 1;
  const marked = (mark, lines) => lines.map((line) => mark + line);
  return [
    "@@",
    ...marked(" ", before.slice(0, head)),
    ...marked("-", before.slice(head, before.length - tail)),
    ...marked("+", after.slice(head, after.length - tail)),
    ...marked(" ", before.slice(before.length - tail)),
  ].join("\n");
}
