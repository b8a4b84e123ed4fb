// Everything that waits for a person, of all sessions, the oldest first.

import { ApiError, clockSkew, resumeRun } from "./api.js";
import { approvals } from "./approvals.js";
import { h, say, show } from "./dom.js";
import { sessionsOf } from "./sidebar.js";
import { ago } from "./words.js";

export function inboxPage(place, shell) {
  const page = new InboxPage(shell);
  place.append(page.element);
  page.live();
  document.title = "Inbox · Quiesce";
  return () => page.left.abort();
}

class InboxPage {
  constructor(shell) {
    this.shell = shell;
    this.left = new AbortController();
    this.groups = new Map(); // by the run and what it asks, so that what is typed there stays
    this.count = h("p", { class: "meta", role: "status" }, "Loading");
    this.list = h("div", { class: "inbox" });
    this.element = h("div", { class: "page" }, h("h1", {}, "Inbox"), this.count, this.list);
  }

  live() {
    this.shell.feed.listen(() => this.#draw(), this.left.signal);
  }

  #draw() {
    const runs = this.shell.feed.waiting;
    const wanted = new Map(runs.map((run) => [`${run.id} ${run.interrupts.map((each) => each.id).join(" ")}`, run]));
    for (const [key, group] of this.groups) {
      if (wanted.has(key)) continue;
      group.remove();
      this.groups.delete(key);
    }
    const titles = new Map(sessionsOf(this.shell.feed.runs.values()).flatMap((session) => session.runs.map((run) => [run.id, session.title])));
    for (const [key, run] of wanted) {
      if (this.groups.has(key)) continue;
      const group = this.#group(run, titles.get(run.id));
      this.groups.set(key, group);
      this.list.append(group);
    }
    const number = runs.reduce((sum, run) => sum + run.interrupts.length, 0);
    say(this.count, number ? `${number} ${number === 1 ? "question waits" : "questions wait"} for an answer` : "Nothing waits for you.");
    // Enter answers what has waited longest, unless the person is somewhere else.
    const focused = document.activeElement;
    if (!focused?.isConnected || focused === document.body || focused.id === "main") this.list.querySelector(".approval button.primary:enabled")?.focus();
  }

  #group(run, title) {
    const problem = h("p", { class: "problem", role: "alert", hidden: true });
    const answer = async (answers) => {
      show(problem, false);
      try {
        await resumeRun(run.id, answers);
        this.shell.announce("The answer is sent.");
        return true;
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        say(problem, error.text);
        show(problem, true);
        return false;
      }
    };
    const options = { now: () => Date.now() / 1000 + clockSkew(), signal: this.left.signal, id: null };
    const link = h("a", { href: `#/runs/${encodeURIComponent(run.id)}`, dir: "auto" }, title);
    const asker = h("p", { class: "asker" }, link, h("span", { class: "meta" }, `${run.agent} · asked ${ago(run.interrupts[0].asked_at || run.created_at)}`));
    return h("div", { class: "asked", role: "group", "aria-label": `Asked in ${title}` }, asker, problem, approvals(run.interrupts, answer, options));
  }
}
