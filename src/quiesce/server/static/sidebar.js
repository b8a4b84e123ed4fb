// The sessions beside every page: the first prompt, the state, the age, the cost, and whether a person is waited for.

import { client } from "./api.js";
import { h, say, show } from "./dom.js";
import { ago, sumCost, stateOf } from "./words.js";

const TICK = 10_000;
const FILTERS = { all: "Any state", active: "Running", waiting: "Waiting for you", bad: "Failed or stopped" };
const TIMES = { any: "Any time", "1d": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days" };
// How long after the last key a search goes to the server, and how many runs a page has.
const TYPING = 300;
const PAGE = 200;

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

/** Whether a session is among those that the person looks for: { words, state, agent, since }. */
function matches(session, { words, state, agent, since }) {
  const { last } = session;
  const tone = stateOf(last)[1];
  const states = { all: true, active: ["queued", "running", "stopping"].includes(last.state), waiting: session.waits, bad: tone === "bad" || tone === "stopped" };
  if (!states[state] || (agent && last.agent !== agent) || last.created_at < since) return false;
  return words.every((word) => session.runs.some((run) => `${run.prompt} ${run.session ?? ""} ${run.agent} ${run.id}`.toLowerCase().includes(word)));
}

function select(id, name, words, onChange) {
  return h("select", { id, "aria-label": name, on: { change: onChange } }, ...Object.entries(words).map(([value, label]) => h("option", { value }, label)));
}

export class Sidebar {
  constructor(element, feed) {
    this.element = element;
    this.feed = feed;
    this.rows = new Map();
    this.shown = ""; // the run that the page shows
    this.next = null; // where the next page of older runs begins
    this.isExhausted = false; // for the present filters, the server has no older runs
    const changed = () => this.#looksFor();
    this.search = h("input", { type: "search", id: "session-search", placeholder: "Search", "aria-label": "Search the sessions", on: { input: changed } });
    this.filter = select("session-filter", "Which sessions", FILTERS, changed);
    this.agent = select("session-agent", "Of which agent", { "": "Any agent" }, changed);
    this.time = select("session-time", "From which time", TIMES, changed);
    this.list = h("ul", { class: "sessions" });
    this.empty = h("p", { class: "hint", role: "status", hidden: true });
    this.more = h("button", { type: "button", class: "quiet small", id: "session-more", hidden: true, on: { click: () => this.#older() } }, "Show older sessions");
    element.append(h("div", { class: "sidebar-head" }, h("h2", {}, "Sessions"), h("a", { href: "#/", class: "new-session" }, "New")), h("div", { class: "sidebar-find" }, this.search, this.filter, this.time, this.agent), this.empty, this.list, this.more);
    feed.listen(() => (this.drawing ||= setTimeout(() => this.draw(), 50)));
    setInterval(() => this.draw(), TICK);
  }

  get #wanted() {
    const days = Number.parseInt(this.time.value, 10);
    const since = days ? Date.now() / 1000 - days * 86_400 : 0;
    return { words: this.search.value.trim().toLowerCase().split(/\s+/).filter(Boolean), state: this.filter.value, agent: this.agent.value, since };
  }

  /** The person looks for something else. What the list does not have is looked for on the server. */
  #looksFor() {
    this.next = null;
    this.isExhausted = false;
    this.draw();
    clearTimeout(this.typing);
    if (this.feed.isFull && (this.search.value.trim() || this.agent.value)) this.typing = setTimeout(() => this.#older(), TYPING);
  }

  /** Load runs that are older than those that are known for the present filters. */
  async #older() {
    const { words, agent, since } = this.#wanted;
    const isFirst = this.next === null;
    const oldest = Math.min(...[...this.feed.runs.values()].map((run) => run.created_at));
    const query = { limit: PAGE, ...(isFirst ? { until: oldest } : { before: this.next }), ...(words.length ? { search: words.join(" ") } : {}), ...(agent ? { agent } : {}), ...(since ? { since } : {}) };
    this.more.disabled = true;
    try {
      const page = await client.listRuns(query);
      this.next = page.next;
      this.isExhausted = page.next === null;
      this.feed.add(page.runs);
    } catch (error) {
      say(this.empty, error.text ?? String(error));
      show(this.empty, true);
    } finally {
      this.more.disabled = false;
      this.draw();
    }
  }

  /** Offer the agents to choose from, when there is more than one. */
  #agents(runs) {
    const names = [...new Set(runs.map((run) => run.agent))].sort();
    if (this.agent.options.length > names.length) return;
    const chosen = this.agent.value;
    this.agent.replaceChildren(h("option", { value: "" }, "Any agent"), ...names.map((name) => h("option", { value: name }, name)));
    this.agent.value = chosen;
  }

  /** The page shows this run. */
  show(id) {
    this.shown = id;
    this.draw();
  }

  draw() {
    clearTimeout(this.drawing);
    this.drawing = 0;
    const known = [...this.feed.all.values()];
    this.#agents(known);
    show(this.agent, this.agent.options.length > 2);
    show(this.more, this.feed.isFull && !this.isExhausted);
    const sought = this.#wanted;
    const found = sessionsOf(known).filter((session) => matches(session, sought));
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
    say(this.empty, known.length ? "No session matches." : "No sessions yet.");
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
