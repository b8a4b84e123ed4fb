// Markdown while it streams, as DOM nodes: no text ever becomes markup, HTML stays text, and nothing is loaded.
// Complete blocks are drawn once. Only the last block, which may still grow, is parsed again.

import { copyButton, h } from "./dom.js";
import { highlighted } from "./highlight.js";
import { Section } from "./sections.js";

const SMALL = 4096; // an open block of this size is parsed for each update
const INLINE_MOST = 65_536; // a longer paragraph is shown as plain text
const DEPTH = 8;
const LOOSE = 100; // so many complete blocks are followed one by one; before them are sections
const SECTION = 25; // complete blocks of a section
const ITEMS = 200; // of one list
const ROWS = 1000; // of one table; more stay text
const LABEL_MOST = 400;
const PART = 100; // lines of code that are laid out together
const COLOURED_MOST = 40_000; // characters of code; a longer one has no colours
const SCHEMES = new Set(["http:", "https:", "mailto:"]);

/** A text as markdown; `update` brings it up to date in place, so that a selection survives. */
export class Markdown {
  constructor() {
    this.element = h("div", { class: "words md" });
    this.#reset();
  }

  #reset() {
    this.element.replaceChildren();
    this.text = "";
    this.settled = 0; // how much of the text is in complete blocks
    this.nodes = 0; // and how many children they are: first the sections, then the loose ones
    this.sections = 0;
    this.space = ""; // at the end of what was parsed: a paragraph shows none there
    this.loose = []; // the lines of each complete block that is in no section, and how many nodes it has
    this.parsedAt = -Infinity;
    this.cost = 0;
  }

  /** Show this text. `done`: it does not grow any more. */
  update(text, done) {
    if (text === this.text && !(done && this.behind)) return;
    if (!text.startsWith(this.text)) this.#reset();
    const added = text.slice(this.text.length);
    this.text = text;
    const now = performance.now();
    // Parsing a long block takes at most a small part of the time. Until then, what is new is shown as plain text.
    this.behind = !done && text.length - this.settled > SMALL && now - this.parsedAt < 20 * this.cost;
    if (this.behind) return this.#append(added);
    this.#parse(done);
    this.cost = performance.now() - now;
    this.parsedAt = now;
  }

  #append(added) {
    let place = this.element;
    while (place.lastElementChild) place = place.lastElementChild;
    const text = place.closest("pre") ? added : this.space + added;
    this.space = "";
    if (place.lastChild) place.lastChild.appendData(text);
    else place.append(text);
  }

  #parse(done) {
    const lines = this.text.slice(this.settled).split("\n");
    const open = [];
    const isWhole = done && this.settled === 0;
    for (let at = 0; at < lines.length; ) {
      const { end, nodes } = block(lines, at, 0);
      if (end < lines.length - 1) this.#settle(nodes, lines.slice(at, end), isWhole);
      else for (const node of nodes) open.push(node);
      at = end;
    }
    morph(this.element, this.nodes, open, true);
    const last = lines.at(-1);
    this.space = last.slice(last.trimEnd().length);
  }

  /** Keep a complete block. When there are many, the first ones become a section. */
  #settle(nodes, lines, isWhole) {
    morph(this.element, this.nodes, nodes, false);
    this.nodes += nodes.length;
    for (const line of lines) this.settled += line.length + 1;
    if (!nodes.length) return;
    this.loose.push({ lines, number: nodes.length });
    if (this.loose.length >= LOOSE + SECTION) this.#section(isWhole);
  }

  #section(isWhole) {
    const some = this.loose.splice(0, SECTION);
    const lines = some.flatMap((each) => [...each.lines, ""]);
    const number = some.reduce((sum, each) => sum + each.number, 0);
    const nodes = [...this.element.childNodes].slice(this.sections, this.sections + number);
    const after = nodes.at(-1).nextSibling;
    const section = new Section(nodes, lines.length, () => some.flatMap((each) => blocks(each.lines, 0)));
    this.element.insertBefore(section.element, after);
    if (isWhole && this.sections > 0) section.putOff(); // the first one is where people begin to read
    this.sections += 1;
    this.nodes -= number - 1;
  }
}

// --- Keeping what is drawn -------------------------------------------------------------------------------------------

/** Make the children of `place` from `start` on look like `nodes`, and keep each that already does. */
function morph(place, start, nodes, only) {
  let old = place.childNodes[start] ?? null;
  for (const node of nodes) {
    const next = old?.nextSibling ?? null;
    if (!old) place.append(node);
    else if (!alike(old, node)) old.replaceWith(node);
    else if (node.nodeType === Node.TEXT_NODE) setText(old, node.data);
    else morph(old, 0, [...node.childNodes], true);
    old = next;
  }
  while (only && old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
}

function setText(node, text) {
  if (text === node.data) return;
  if (text.startsWith(node.data)) node.appendData(text.slice(node.data.length));
  else node.data = text;
}

function alike(a, b) {
  if (a.nodeName !== b.nodeName) return false;
  if (a.nodeType === Node.TEXT_NODE) return true;
  return a.attributes.length === b.attributes.length && [...b.attributes].every(({ name, value }) => a.getAttribute(name) === value);
}

// --- Blocks ----------------------------------------------------------------------------------------------------------

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?=\s|$)/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?: {1,4}|\t|$)/;
const UNDERLINE = /^ {0,3}(={2,}|-{2,})\s*$/;

const isBlank = (line) => line.trim() === "";
const indent = (line) => line.length - line.trimStart().length;

function isRule(line) {
  const marks = line.length < 200 ? line.replace(/\s/g, "") : "";
  return marks.length >= 3 && "-*_".includes(marks[0]) && [...marks].every((mark) => mark === marks[0]) && indent(line) < 4;
}

const begins = (line) => FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || ITEM.test(line) || isRule(line);

/** The block that begins at line `at`: { end, nodes }, `end` being the line after it. */
function block(lines, at, depth) {
  const line = lines[at];
  if (isBlank(line)) return { end: at + 1, nodes: [] };
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return { end: at + 1, nodes: [headingNode(heading[1].length, line.slice(heading[0].length).trim().replace(/\s#+$/, ""))] };
  if (isRule(line)) return { end: at + 1, nodes: [h("hr")] };
  if (depth < DEPTH && QUOTE.test(line)) return quote(lines, at, depth);
  if (depth < DEPTH && ITEM.test(line)) return list(lines, at, depth);
  return table(lines, at) ?? paragraph(lines, at);
}

function blocks(lines, depth) {
  const all = [];
  for (let at = 0; at < lines.length; ) {
    const { end, nodes } = block(lines, at, depth);
    for (const node of nodes) all.push(node);
    at = end;
  }
  return all;
}

function headingNode(level, text) {
  return h(`h${Math.min(6, level + 2)}`, { dir: "auto", class: `md-h${level}` }, inline(text));
}

function code(lines, at, [, fence, info]) {
  const closes = (line) => indent(line) < 4 && line.trim().length >= fence.length && [...line.trim()].every((mark) => mark === fence[0]);
  let end = at + 1;
  while (end < lines.length && !(lines[end].trimStart().startsWith(fence) && closes(lines[end]))) end += 1;
  const inside = lines.slice(at + 1, end);
  if (indent(lines[at])) inside.forEach((line, index) => (inside[index] = line.slice(Math.min(indent(line), indent(lines[at])))));
  const language = info.trim().split(/\s/)[0].slice(0, 30);
  return { end: Math.min(end + 1, lines.length), nodes: [codeNode(language, inside.join("\n"), end >= lines.length)] };
}

/** Code in parts of some lines each: a browser lays out only those that are seen. Little of it is coloured while it is written. */
function codeNode(language, text, isOpen) {
  const most = isOpen ? SMALL : COLOURED_MOST;
  const lines = (text.length <= most && highlighted(language, text)) || text.split("\n").map((line) => [line]);
  const parts = [];
  for (let at = 0; at < lines.length; at += PART) {
    const some = lines.slice(at, at + PART);
    parts.push(h("span", { class: "code-part" }, ...joined(some)));
  }
  return h(
    "div",
    { class: "code" },
    h("div", { class: "code-head" }, h("span", {}, language || "code"), copyButton("Copy the code")),
    h("pre", { tabindex: 0, dir: "ltr", role: "group", "aria-label": `Code${language ? ` in ${language}` : ""}` }, h("code", {}, ...parts)),
  );
}

/** Lines of nodes and texts with line breaks between them; texts beside each other become one. */
function joined(lines) {
  const made = [];
  const add = (each) => {
    if (typeof each === "string" && typeof made.at(-1) === "string") made[made.length - 1] += each;
    else made.push(each);
  };
  lines.forEach((line, index) => {
    if (index) add("\n");
    line.forEach(add);
  });
  return made;
}

function quote(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inside = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return { end, nodes: [h("blockquote", {}, blocks(inside, depth + 1))] };
}

function list(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  const ordered = /\d/.test(first[2]);
  const items = [];
  let loose = false;
  let end = at;
  for (; end < lines.length; end++) {
    const line = lines[end];
    const current = items.at(-1);
    const item = ITEM.exec(line);
    if (isBlank(line)) current.lines.push("");
    else if (current && indent(line) >= current.inset) current.lines.push(line.slice(current.inset));
    else if (item && /\d/.test(item[2]) === ordered && !isRule(line)) {
      if (items.length === ITEMS) break; // the rest is a list of its own, so that a long list is not drawn again and again
      loose ||= current?.lines.at(-1) === "";
      items.push({ inset: Math.max(2, item[0].length), lines: [line.slice(item[0].length)] });
    } else if (current.lines.at(-1) === "" || begins(line)) break;
    else current.lines.push(line.trimStart());
  }
  const nodes = items.map((item) => h("li", { dir: "auto" }, itemNodes(item.lines, depth, loose)));
  const start = ordered ? Number.parseInt(first[2], 10) : 1;
  return { end, nodes: [h(ordered ? "ol" : "ul", { start: start === 1 ? null : start }, nodes)] };
}

function itemNodes(lines, depth, loose) {
  const task = /^\[([ xX])\] /.exec(lines[0]);
  if (task) lines[0] = `${task[1] === " " ? "☐" : "☑"} ${lines[0].slice(4)}`;
  const inside = blocks(lines, depth + 1);
  return loose || inside[0]?.nodeName !== "P" ? inside : [...inside[0].childNodes, ...inside.slice(1)];
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && !UNDERLINE.test(lines[end]) && !begins(lines[end])) end += 1;
  const text = lines.slice(at, end).join("\n").trim();
  const under = end < lines.length ? UNDERLINE.exec(lines[end]) : null;
  if (under) return { end: end + 1, nodes: [headingNode(under[1][0] === "=" ? 1 : 2, text)] };
  return { end, nodes: [h("p", { dir: "auto" }, inline(text))] };
}

function cells(line) {
  const parts = line.trim().replace(/^\|/, "").split("|");
  const whole = [];
  for (const part of parts) {
    if (whole.at(-1)?.endsWith("\\")) whole.push(`${whole.pop().slice(0, -1)}|${part}`);
    else whole.push(part);
  }
  if (whole.length > 1 && isBlank(whole.at(-1))) whole.pop();
  return whole.map((part) => part.trim());
}

function table(lines, at) {
  if (!lines[at].includes("|") || !lines[at + 1]?.includes("-")) return null;
  const marks = cells(lines[at + 1]);
  const names = cells(lines[at]);
  if (marks.length !== names.length || !marks.every((mark) => /^:?-+:?$/.test(mark))) return null;
  let end = at + 2;
  while (end < lines.length && end - at < ROWS && lines[end].includes("|") && !isBlank(lines[end])) end += 1;
  const sides = marks.map((mark) => (mark.endsWith(":") ? (mark.startsWith(":") ? "middle" : "right") : null));
  const row = (line, tag) => {
    const given = cells(line);
    return h("tr", {}, names.map((_, n) => h(tag, { class: sides[n], dir: "auto", scope: tag === "th" ? "col" : null }, inline(given[n] ?? ""))));
  };
  const rows = lines.slice(at + 2, end).map((line) => row(line, "td"));
  const drawn = h("table", {}, h("thead", {}, row(lines[at], "th")), h("tbody", {}, rows));
  return { end, nodes: [h("div", { class: "md-table", tabindex: 0, role: "group", "aria-label": "Table" }, drawn)] };
}

// --- Inside a block --------------------------------------------------------------------------------------------------

const SPECIAL = /[\\`*_~[!<&]|\bhttps?:\/\//g;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const BARE = /https?:\/\/[^\s<>"'`|]+/y;
const AUTO = /<(https?:\/\/[^\s<>]+|mailto:[^\s<>]+)>/y;
const ENTITY = /&(amp|lt|gt|quot|apos|nbsp|#39);/y;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", "#39": "'" };

/** The nodes of a text without blocks. `failed` keeps what has no end further on, so that nothing is searched twice. */
function inline(text, depth = 0) {
  if (text.length > INLINE_MOST || depth > DEPTH) return text ? [text] : [];
  const out = [];
  const failed = new Set();
  let plain = "";
  for (let at = 0; at < text.length; ) {
    SPECIAL.lastIndex = at;
    const next = SPECIAL.exec(text)?.index ?? text.length;
    plain += text.slice(at, next);
    at = next;
    if (at === text.length) break;
    const found = span(text, at, depth, failed);
    if (found?.text !== undefined) plain += found.text;
    else if (found) {
      if (plain) out.push(plain);
      plain = "";
      out.push(found.node);
    } else plain += text[at];
    at = found?.end ?? at + 1;
  }
  if (plain) out.push(plain);
  return out.map((each) => (typeof each === "string" ? document.createTextNode(each) : each));
}

/** What begins at `at`: { end, node } or { end, text }; nothing when the character stands for itself. */
function span(text, at, depth, failed) {
  switch (text[at]) {
    case "\\":
      return text[at + 1] !== undefined && PUNCTUATION.test(text[at + 1]) ? { end: at + 2, text: text[at + 1] } : null;
    case "`":
      return codeSpan(text, at, failed);
    case "*":
    case "_":
    case "~":
      return emphasis(text, at, depth, failed);
    case "[":
      return link(text, at, depth);
    case "!":
      return text[at + 1] === "[" ? link(text, at + 1, depth, "md-image") : null;
    case "&":
      return matched(ENTITY, text, at, (found) => ({ text: ENTITIES[found[1]] }));
    case "<":
      return matched(AUTO, text, at, (found) => anchor(found[1], [found[1]])) ?? matched(/<br\s{0,3}\/?>/iy, text, at, () => ({ node: h("br") }));
    default:
      return bare(text, at);
  }
}

function matched(pattern, text, at, make) {
  pattern.lastIndex = at;
  const found = pattern.exec(text);
  const made = found && make(found);
  return made ? { end: at + found[0].length, ...made } : null;
}

function runOf(text, at) {
  let end = at;
  while (text[end] === text[at]) end += 1;
  return end - at;
}

function codeSpan(text, at, failed) {
  const wide = runOf(text, at);
  const mark = "`".repeat(wide);
  const end = failed.has(mark) ? -1 : closingTicks(text, at + wide, wide);
  if (end < 0) {
    failed.add(mark);
    return { end: at + wide, text: mark };
  }
  const inside = text.slice(at + wide, end).replaceAll("\n", " ");
  const padded = inside.startsWith(" ") && inside.endsWith(" ") && inside.trim() !== "";
  return { end: end + wide, node: h("code", { dir: "ltr" }, padded ? inside.slice(1, -1) : inside) };
}

function closingTicks(text, from, wide) {
  for (let at = text.indexOf("`", from); at >= 0; ) {
    const found = runOf(text, at);
    if (found === wide) return at;
    at = text.indexOf("`", at + found);
  }
  return -1;
}

const TAGS = { "***": ["em", "strong"], "**": ["strong"], "*": ["em"], __: ["strong"], _: ["em"], "~~": ["del"] };
const isSpace = (letter) => letter === undefined || /\s/.test(letter);
const isWord = (letter) => letter !== undefined && /[\p{L}\p{N}]/u.test(letter);

function emphasis(text, at, depth, failed) {
  const letter = text[at];
  const wide = runOf(text, at);
  const mark = letter.repeat(Math.min(wide, letter === "*" ? 3 : 2));
  const opens = TAGS[mark] && wide <= 3 && !isSpace(text[at + mark.length]) && !(letter === "_" && isWord(text[at - 1]));
  const end = opens && !failed.has(mark) ? closing(text, at + mark.length, mark) : -1;
  if (end < 0) {
    if (opens) failed.add(mark);
    return { end: at + wide, text: letter.repeat(wide) };
  }
  const inside = inline(text.slice(at + mark.length, end), depth + 1);
  return { end: end + mark.length, node: TAGS[mark].reduceRight((children, tag) => [h(tag, {}, children)], inside)[0] };
}

/** Where the emphasis that `mark` has begun ends; -1 if it does not. */
function closing(text, from, mark) {
  for (let at = from; at < text.length; ) {
    if (text[at] === "\\") at += 2;
    else if (text[at] === "`") {
      const wide = runOf(text, at);
      const end = closingTicks(text, at + wide, wide);
      at = end < 0 ? at + wide : end + wide;
    } else if (text[at] === mark[0]) {
      const wide = runOf(text, at);
      const fits = mark.length === 1 ? wide !== 2 : wide >= mark.length;
      const ends = !isSpace(text[at - 1]) && !(mark[0] === "_" && isWord(text[at + wide]));
      if (fits && ends) return at + wide - mark.length;
      at += wide;
    } else at += 1;
  }
  return -1;
}

function link(text, at, depth, look) {
  let deep = 0;
  let end = at;
  for (; end < text.length && end - at < LABEL_MOST; end++) {
    if (text[end] === "\\") end += 1;
    else if (text[end] === "[") deep += 1;
    else if (text[end] === "]" && --deep === 0) break;
  }
  if (text[end] !== "]" || text[end + 1] !== "(") return null;
  const target = /\(\s{0,3}(<[^<>\n]*>|[^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)?)(?:\s{1,3}(?:"[^"\n]{0,400}"|'[^'\n]{0,400}'))?\s{0,3}\)/y;
  target.lastIndex = end + 1;
  const found = target.exec(text);
  if (!found) return null;
  const label = text.slice(at + 1, end);
  const made = anchor(found[1].replace(/^<|>$/g, ""), label ? inline(label, depth + 1) : [found[1]], look);
  return made && { end: end + 1 + found[0].length, ...made };
}

/** A link, if its address is safe; otherwise nothing, and its source stays text. Images become links: nothing is loaded. */
function anchor(address, children, look) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (!SCHEMES.has(url.protocol) || url.username || url.password) return null;
  return { node: h("a", { href: url.href, rel: "noopener noreferrer nofollow", target: "_blank", title: url.href, class: look }, children) };
}

function bare(text, at) {
  return matched(BARE, text, at, (found) => {
    let address = found[0].replace(/[.,;:!?*_~]+$/, "");
    while (address.endsWith(")") && address.split(")").length > address.split("(").length) address = address.slice(0, -1).replace(/[.,;:!?]+$/, "");
    const made = anchor(address, [address]);
    return made && { ...made, end: at + address.length };
  });
}
