// The sessions beside every page: the first prompt, the state, the age, the cost, and whether a person is waited for.

import { h, say, show } from "./dom.js";
import { ago, sumCost, stateOf } from "./words.js";

const TICK = 10_000;
const FILTERS = { all: "All", active: "Running", waiting: "Waiting for you", bad: "Failed or stopped" };

/** The sessions of some runs, the last used first. A run without a session is one of its own, with the runs that follow from it. */
export function sessionsOf(runs) {
  const sessions = new Map();
  for (const run of [...runs].sort((a, b) => a.created_at - b.created_at)) {
    const key = run.session ? `session ${run.session}` : `task ${run.task || run.id}`;
    const session = sessions.get(key) ?? { key, title: run.prompt || "(no text)", runs: [] };
    session.runs.push(run);
    sessions.set(key, session);
  }
  const all = [...sessions.values()].map((session) => ({ ...session, last: session.runs.at(-1), waits: session.runs.some((run) => run.interrupts.length > 0) }));
  return all.sort((a, b) => b.last.created_at - a.last.created_at);
}

function matches(session, filter) {
  const tone = stateOf(session.last)[1];
  if (filter === "active") return ["queued", "running", "stopping"].includes(session.last.state);
  if (filter === "waiting") return session.waits;
  return filter === "all" || tone === "bad" || tone === "stopped";
}

export class Sidebar {
  constructor(element, feed) {
    this.element = element;
    this.feed = feed;
    this.rows = new Map();
    this.shown = ""; // the run that the page shows
    this.search = h("input", { type: "search", id: "session-search", placeholder: "Search", "aria-label": "Search the sessions", on: { input: () => this.draw() } });
    this.filter = h("select", { id: "session-filter", "aria-label": "Which sessions", on: { change: () => this.draw() } }, ...Object.entries(FILTERS).map(([value, label]) => h("option", { value }, label)));
    this.list = h("ul", { class: "sessions" });
    this.empty = h("p", { class: "hint", hidden: true });
    element.append(h("div", { class: "sidebar-head" }, h("h2", {}, "Sessions"), h("a", { href: "#/", class: "new-session" }, "New")), h("div", { class: "sidebar-find" }, this.search, this.filter), this.empty, this.list);
    feed.listen(() => (this.drawing ||= setTimeout(() => this.draw(), 50)));
    setInterval(() => this.draw(), TICK);
  }

  /** The page shows this run. */
  show(id) {
    this.shown = id;
    this.draw();
  }

  draw() {
    clearTimeout(this.drawing);
    this.drawing = 0;
    const words = this.search.value.trim().toLowerCase();
    const found = sessionsOf(this.feed.runs.values()).filter((session) => matches(session, this.filter.value) && (!words || session.runs.some((run) => `${run.prompt} ${run.session ?? ""} ${run.agent} ${run.id}`.toLowerCase().includes(words))));
    const wanted = new Set(found.map((session) => session.key));
    for (const [key, row] of this.rows) {
      if (wanted.has(key)) continue;
      row.element.remove();
      this.rows.delete(key);
    }
    found.forEach((session, index) => {
      const row = this.rows.get(session.key) ?? new Row();
      this.rows.set(session.key, row);
      row.update(session, this.shown);
      if (this.list.children[index] !== row.element) this.list.insertBefore(row.element, this.list.children[index] ?? null);
    });
    say(this.empty, this.feed.runs.size ? "No session matches." : "No sessions yet.");
    show(this.empty, this.feed.isLoaded && !found.length);
  }
}

class Row {
  constructor() {
    this.dot = h("span", { class: "dot", "aria-hidden": "true" });
    this.title = h("span", { class: "session-title", dir: "auto" });
    this.state = h("span", { class: "session-state" });
    this.meta = h("span", { class: "meta" });
    this.link = h("a", { class: "session-row" }, this.dot, this.title, this.state, this.meta);
    this.element = h("li", {}, this.link);
  }

  update(session, shown) {
    const [word, tone] = session.waits ? ["Waiting for you", "ask"] : stateOf(session.last);
    const address = `#/runs/${encodeURIComponent(session.last.id)}`;
    if (this.link.getAttribute("href") !== address) this.link.setAttribute("href", address);
    this.link.dataset.tone = tone;
    if (session.runs.some((run) => run.id === shown)) this.link.setAttribute("aria-current", "page");
    else this.link.removeAttribute("aria-current");
    say(this.title, session.title);
    say(this.state, word);
    say(this.meta, [ago(session.last.created_at), sumCost(session.runs.filter((run) => run.usage?.calls).map((run) => run.usage.cost))?.value].filter(Boolean).join(" · "));
  }
}
