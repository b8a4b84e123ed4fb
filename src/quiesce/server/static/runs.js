// The list of runs, the newest first, with their status, and the composer for a new run.

import { client, ServerProblem, Starter } from "./api.js";
import { Composer } from "./composer.js";
import { h, say, show } from "./dom.js";
import { setTitle } from "./notifications.js";
import { ago, cost, duration, stateOf, tokens } from "./words.js";

// How often "just now" becomes "10 s ago".
const TICK = 10_000;
// The list shows at most this many runs.
const MOST = 200;
const TAIL = 140;

export function runsPage(place, shell) {
  const page = new RunsPage(shell);
  place.append(page.element);
  page.live();
  return () => page.leave();
}

class RunsPage {
  constructor(shell) {
    this.shell = shell;
    this.left = new AbortController();
    this.rows = new Map();
    this.starter = new Starter();
    this.agent = h("select", { id: "agent", "aria-label": "Agent", hidden: true });
    this.composer = new Composer("new", "New session", { send: (text) => this.#start(text) });
    this.composer.extra.append(this.agent);
    this.list = h("ul", { class: "runs", "aria-label": "Runs" });
    this.empty = h("p", { class: "empty", hidden: true }, "No runs yet. Write a prompt below to start one.");
    this.count = h("p", { class: "meta", role: "status" });
    this.element = h("div", { class: "page" }, h("h1", { class: "visually-hidden" }, "Runs"), this.composer.element, h("div", { class: "list-head" }, h("h2", {}, "Runs"), this.count), this.empty, this.list);
    setTitle("Runs · Quiesce");
  }

  live() {
    this.#agents();
    this.ticker = setInterval(() => this.#draw(), TICK);
    this.shell.feed.listen(() => (this.drawing ||= setTimeout(() => this.#draw(), 16)), this.left.signal);
  }

  leave() {
    this.left.abort();
    clearInterval(this.ticker);
    clearTimeout(this.drawing);
  }

  async #agents() {
    try {
      const { agents } = await client.listAgents();
      this.agent.append(...agents.map((agent) => h("option", { value: agent.name }, `${agent.name} (${agent.model})`)));
      show(this.agent, agents.length > 1);
    } catch {
      // Without a choice, the server uses its first agent.
    }
  }

  #draw() {
    clearTimeout(this.drawing);
    this.drawing = 0;
    const runs = [...this.shell.feed.runs.values()].sort((a, b) => b.created_at - a.created_at).slice(0, MOST);
    const wanted = new Set(runs.map((run) => run.id));
    for (const [id, row] of this.rows) {
      if (!wanted.has(id)) {
        row.element.remove();
        this.rows.delete(id);
      }
    }
    runs.forEach((run, index) => {
      let row = this.rows.get(run.id);
      if (!row) {
        row = new Row(run);
        this.rows.set(run.id, row);
      }
      row.update(run);
      if (this.list.children[index] !== row.element) this.list.insertBefore(row.element, this.list.children[index] ?? null);
    });
    const active = runs.filter((run) => run.state !== "ended" && run.state !== "crashed").length;
    say(this.count, active ? `${active} running` : runs.length ? "None running" : "");
    show(this.empty, runs.length === 0);
  }

  async #start(prompt) {
    this.composer.setMode("starting");
    let stopAtOnce = false;
    const onKey = (event) => {
      if (event.key === "Escape") stopAtOnce = true;
    };
    document.addEventListener("keydown", onKey);
    try {
      const wanted = this.agent.value ? { prompt, agent: this.agent.value } : { prompt };
      const run = await this.starter.start(wanted, (key) => ({ session: `console-${key}` }));
      this.shell.go(`#/runs/${encodeURIComponent(run.id)}`, { stopAtOnce, isNew: true });
      return true;
    } catch (error) {
      if (!(error instanceof ServerProblem)) throw error;
      this.composer.complain(error.text);
      return false;
    } finally {
      document.removeEventListener("keydown", onKey);
      this.composer.setMode("idle");
    }
  }
}

class Row {
  constructor(run) {
    this.dot = h("span", { class: "dot", "aria-hidden": "true" });
    this.word = h("span");
    this.pill = h("span", { class: "pill" }, this.dot, this.word);
    this.prompt = h("span", { class: "run-prompt" }, run.prompt || "(no text)");
    this.tail = h("span", { class: "run-tail" });
    this.meta = h("span", { class: "meta" });
    this.element = h("li", {}, h("a", { href: `#/runs/${encodeURIComponent(run.id)}`, class: "run-row" }, h("span", { class: "run-main" }, this.prompt, this.tail), h("span", { class: "run-side" }, this.pill, this.meta)));
  }

  update(run) {
    const [word, tone] = stateOf(run);
    const waiting = run.state === "stopping" && run.waiting_for.length ? `: waiting for ${run.waiting_for.join(", ")}` : "";
    this.pill.dataset.tone = tone;
    say(this.word, word + waiting);
    say(this.tail, lastWords(run.text_tail));
    const out = run.usage?.output;
    const money = cost(run.usage?.cost);
    const took = run.ended_at === null ? "" : `took ${duration(run.ended_at - run.created_at)}`;
    say(this.meta, [ago(run.created_at), took, out && run.usage.calls ? `${tokens(out).value} tokens out` : "", money?.value ?? ""].filter(Boolean).join(" · "));
  }
}

/** The end of the text so far, from the beginning of a word. */
function lastWords(tail) {
  if (tail.length <= TAIL) return tail.trim();
  const end = tail.slice(-TAIL);
  return `… ${end.slice(end.search(/\s/) + 1).trim()}`;
}
