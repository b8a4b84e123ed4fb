// Code in colours: comments, strings, numbers and keywords of the usual languages. Text becomes text nodes, as everywhere.

import { h } from "./dom.js";

const C = { line: "//", block: ["/*", "*/"], quotes: `"'` };
const words = (text) => new Set(text.split(" "));
const JS = words("abstract as async await boolean break case catch class const continue debugger declare default delete do else enum export extends false finally for from function get if implements import in instanceof interface let new null number of private protected public readonly return set static string super switch this throw true try type typeof undefined var void while yield");
const LANGUAGES = new Map(Object.entries({
  python: { line: "#", quotes: `"'`, long: ['"""', "'''"], keywords: words("and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield") },
  js: { ...C, quotes: `"'\``, keywords: JS },
  json: { quotes: `"`, keywords: words("true false null") },
  shell: { line: "#", quotes: `"'`, keywords: words("case do done elif else esac export fi for function if in local return set then until while") },
  sql: { line: "--", block: C.block, quotes: `'"`, anyCase: true, keywords: words("add all alter and as asc between by case create default delete desc distinct drop else end exists false from full group having in index inner insert into is join key left like limit not null offset on or order outer primary references right select set table then true union unique update values view when where with") },
  c: { ...C, keywords: words("alignas auto bool break case catch char class const constexpr continue default delete do double else enum extern false final float for func fn go goto if impl import in inline int interface let long loop match mod mut namespace new nil null nullptr operator override package private protected pub public range return self short signed sizeof static string struct super switch template this throw trait true try type typedef typename union unsigned use using var virtual void volatile where while") },
  css: { block: C.block, quotes: `"'`, keywords: words("@import @media @supports @keyframes !important") },
  yaml: { line: "#", quotes: `"'`, keywords: words("true false null yes no") },
}));
const NAMES = new Map(Object.entries({ py: "python", python3: "python", javascript: "js", ts: "js", typescript: "js", jsx: "js", tsx: "js", json5: "json", jsonc: "js", sh: "shell", bash: "shell", zsh: "shell", console: "shell", cpp: "c", "c++": "c", h: "c", cs: "c", csharp: "c", java: "c", kotlin: "c", swift: "c", go: "c", rust: "c", rs: "c", scss: "css", toml: "yaml", yml: "yaml" }));
const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** The pattern of a language: one group for each kind of token, in the order of `KINDS`. No part can look back, so it takes time in proportion to the text. */
function patternOf({ line, block, quotes, long = [] }) {
  const comments = [line && `${escaped(line)}[^\\n]*`, block && `${escaped(block[0])}[^]*?(?:${escaped(block[1])}|$)`].filter(Boolean);
  const strings = [...long.map((mark) => `${mark}[^]*?(?:${mark}|$)`), ...[...quotes].map((mark) => `${mark}(?:[^${mark}\\\\${mark === "`" ? "" : "\\n"}]|\\\\[^])*${mark}?`)];
  return new RegExp(`(${comments.join("|") || "(?!)"})|(${strings.join("|")})|(\\b\\d[\\w.]*)|([@!]?[A-Za-z_]\\w*)`, "g");
}

const patterns = new Map();

/** The tokens of some code as [kind, text], kind being "" for the rest; null for a language that is not known here. */
export function tokens(language, code) {
  const known = LANGUAGES.get(NAMES.get(language.toLowerCase()) ?? language.toLowerCase());
  if (!known) return null;
  if (!patterns.has(known)) patterns.set(known, patternOf(known));
  const found = [];
  let last = 0;
  const add = (kind, text) => {
    if (found.at(-1)?.[0] === kind) found.at(-1)[1] += text;
    else if (text) found.push([kind, text]);
  };
  for (const match of code.matchAll(patterns.get(known))) {
    const [text, comment, string, number] = match;
    add("", code.slice(last, match.index));
    last = match.index + text.length;
    const isKeyword = known.keywords.has(known.anyCase ? text.toLowerCase() : text);
    add(comment ? "comment" : string ? "string" : number ? "number" : isKeyword ? "keyword" : "", text);
  }
  add("", code.slice(last));
  return found;
}

/** Code as lines of nodes; null for a language that is not known here. */
export function highlighted(language, code) {
  const found = tokens(language, code);
  if (!found) return null;
  const lines = [[]];
  for (const [kind, text] of found) {
    text.split("\n").forEach((part, index) => {
      if (index) lines.push([]);
      if (part) lines.at(-1).push(kind ? h("span", { class: `hl-${kind}` }, part) : part);
    });
  }
  return lines;
}
