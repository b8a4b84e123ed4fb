// For how long an approval counts: for this call, for the session, or for calls with certain arguments until some time.

import { h, say, show } from "./dom.js";

const ENDS = { 900: "for 15 minutes", 3600: "for an hour", 28800: "for 8 hours", 86400: "for a day", 604800: "for 7 days" };
const HOW = { equals: "is exactly", like: "is like", any: "may be anything" };
const OTHERS = { once: "Only this call", session: "Also later calls of this tool in this session", pattern: "Also later calls like this one…" };

/** The choice for one approval. `value()` is { remember } for the answer, or {}. */
export class Remember {
  constructor({ id, tool_name: tool, arguments: given }) {
    this.rows = Object.entries(given ?? {}).map(([name, value]) => new Row(name, value));
    this.choice = h("select", { id: `remember-${id}`, on: { change: () => this.#look() } }, ...options(OTHERS));
    this.scope = h("select", { "aria-label": "In which sessions" }, ...options({ agent: "in all sessions", session: "in this session" }));
    this.end = h("select", { "aria-label": "How long" }, ...options(ENDS));
    this.end.value = "3600";
    this.pattern = h("div", { class: "pattern", role: "group", "aria-label": `Which later calls of ${tool}`, hidden: true }, ...this.rows.map((row) => row.element), h("div", { class: "row" }, this.scope, this.end));
    this.hint = h("p", { class: "hint", hidden: true });
    this.element = h("div", { class: "remember" }, h("label", { for: `remember-${id}` }, "If you approve, it counts for"), this.choice, this.pattern, this.hint);
  }

  #look() {
    show(this.pattern, this.choice.value === "pattern");
    show(this.hint, this.choice.value !== "once");
    say(this.hint, "You can take it back on the page Inbox. Denying such a call takes it back too.");
  }

  value() {
    if (this.choice.value === "once") return {};
    if (this.choice.value === "session") return { remember: { scope: "session" } };
    const named = this.rows.filter((row) => row.how.value !== "any").map((row) => [row.name, row.pattern()]);
    return { remember: { scope: this.scope.value, expires_in: Number(this.end.value), arguments: Object.fromEntries(named) } };
  }
}

function options(words) {
  return Object.entries(words).map(([value, label]) => h("option", { value }, label));
}

/** One argument: exactly this value, a text like this, or anything. */
class Row {
  constructor(name, value) {
    this.name = name;
    this.given = value;
    const isText = typeof value === "string";
    const how = isText ? HOW : { equals: HOW.equals, any: HOW.any };
    this.how = h("select", { "aria-label": `How ${name} is compared`, on: { change: () => this.#look() } }, ...options(how));
    this.field = h("input", { type: "text", class: "mono", autocomplete: "off", spellcheck: "false", dir: "ltr", "aria-label": `The value of ${name}` });
    this.field.value = isText ? value : JSON.stringify(value);
    this.hint = h("span", { class: "hint", hidden: true }, "* stands for any characters within a line");
    this.element = h("div", { class: "pattern-row" }, h("code", {}, name), this.how, this.field, this.hint);
    this.#look();
  }

  /** A value that must be exactly the same is shown, not written: what a person sees is what was asked. */
  #look() {
    show(this.field, this.how.value !== "any");
    show(this.hint, this.how.value === "like");
    this.field.readOnly = this.how.value === "equals";
    if (this.field.readOnly) this.field.value = typeof this.given === "string" ? this.given : JSON.stringify(this.given);
  }

  pattern() {
    return this.how.value === "like" ? { like: this.field.value } : { equals: this.given };
  }
}
