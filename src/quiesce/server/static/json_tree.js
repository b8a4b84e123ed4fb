// A value as a tree that opens and closes. Children are made when their parent is opened, a hundred at a time, so that a large
// result costs only what is looked at.

import { h } from "./dom.js";

const PAGE = 100;
const TEXT = 2000; // characters of a string
const PARSED_MOST = 2_000_000;

/** The object or list that a text is the JSON of; undefined for every other text. */
export function parseTree(text) {
  if (!/^\s*[[{]/.test(text) || text.length > PARSED_MOST) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The tree of an object or a list, its first level open. */
export function jsonTree(value, name) {
  const rows = h("ul", { class: "json" });
  grow(rows, entriesOf(value), 0, 0);
  return h("div", { class: "json-tree", role: "group", "aria-label": name, dir: "ltr" }, rows);
}

const isTree = (value) => value !== null && typeof value === "object";
const entriesOf = (value) => (Array.isArray(value) ? value.map((each, index) => [String(index), each]) : Object.entries(value));

function grow(rows, entries, from, depth) {
  for (const [key, value] of entries.slice(from, from + PAGE)) rows.append(h("li", {}, ...row(key, value, depth)));
  const left = entries.length - from - PAGE;
  if (left <= 0) return;
  const more = h("button", { type: "button", class: "quiet small", on: { click: () => {
    more.parentElement.remove();
    grow(rows, entries, from + PAGE, depth);
    rows.children[from + PAGE]?.querySelector("summary, span")?.focus();
  } } }, `Show ${Math.min(PAGE, left)} of ${left} more`);
  rows.append(h("li", {}, more));
}

function row(key, value, depth) {
  const name = h("span", { class: "json-key" }, key);
  if (!isTree(value)) return [name, ": ", leaf(value)];
  const entries = entriesOf(value);
  const size = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  if (!entries.length) return [name, ": ", h("span", { class: "json-size" }, Array.isArray(value) ? "[]" : "{}")];
  const rows = h("ul", { class: "json" });
  const inside = h("details", {}, h("summary", {}, name, " ", h("span", { class: "json-size" }, size)), rows);
  const open = () => rows.childElementCount || grow(rows, entries, 0, depth + 1);
  inside.addEventListener("toggle", open);
  if (depth < 1 && entries.length <= 8) {
    inside.open = true;
    open();
  }
  return [inside];
}

function leaf(value) {
  if (typeof value !== "string") return h("span", { class: `json-${value === null ? "null" : typeof value}` }, String(value));
  const text = value.length > TEXT ? `${value.slice(0, TEXT)}… ${value.length - TEXT} more characters` : value;
  return h("span", { class: "json-string", dir: "auto" }, text.includes("\n") ? text : JSON.stringify(text));
}
