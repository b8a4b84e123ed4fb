// Everything that waits for a person, of all sessions, the oldest first.

import { client, clockSkew, ServerProblem } from "./api.js";
import { approvals } from "./approvals.js";
import { h, say, show } from "./dom.js";
import { setTitle } from "./notifications.js";
import { sessionsOf } from "./sidebar.js";
import { ago, byKey, clock } from "./words.js";

export function openPage(place, shell) {
  const page = new InboxPage(shell);
  place.append(page.element);
  page.live();
  setTitle("Inbox · Quiesce");
  return () => page.left.abort();
}

class InboxPage {
  constructor(shell) {
    this.shell = shell;
    this.left = new AbortController();
    this.groups = new Map(); // by the run and what it asks, so that what is typed there stays
    this.count = h("p", { class: "meta", role: "status" }, "Loading");
    this.list = h("div", { class: "inbox" });
    this.standing = new Standing((text) => shell.announce(text));
    this.element = h("div", { class: "page" }, h("h1", {}, "Inbox"), this.count, shell.notifier.control(), this.list, this.standing.element);
  }

  live() {
    this.shell.feed.listen(() => this.#draw(), this.left.signal);
    this.standing.load();
  }

  #draw() {
    const runs = this.shell.feed.waiting;
    const wanted = new Map(runs.map((run) => [`${run.id} ${run.interrupts.map((each) => each.id).join(" ")}`, run]));
    for (const [key, group] of this.groups) {
      if (wanted.has(key)) continue;
      group.remove();
      this.groups.delete(key);
    }
    const titles = new Map(sessionsOf(this.shell.feed.all.values()).flatMap((session) => session.runs.map((run) => [run.id, session.title])));
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
        await client.resumeRun(run.id, { answers });
        this.shell.announce("The answer is sent.");
        this.standing.load();
        return true;
      } catch (error) {
        if (!(error instanceof ServerProblem)) throw error;
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

/** The approvals that were given in advance, with a button to take each back. */
class Standing {
  constructor(announce) {
    this.announce = announce;
    this.list = h("ul", { class: "standing" });
    this.empty = h("p", { class: "hint" });
    this.element = h("section", { class: "card", "aria-labelledby": "standing-title" }, h("h2", { id: "standing-title", tabindex: -1 }, "Approved in advance"), this.empty, this.list);
  }

  async load() {
    try {
      const { approvals } = await client.listApprovals();
      this.list.replaceChildren(...approvals.map((approval) => this.#row(approval)));
      say(this.empty, approvals.length ? "These calls run without a question. A changed tool is asked about again." : "Nothing. Each call that needs an approval is asked about.");
    } catch (error) {
      say(this.empty, error.text ?? String(error));
    }
  }

  #row(approval) {
    const where = approval.session === null ? `in all sessions of ${approval.agent}` : `in session ${approval.session}`;
    const until = approval.expires_at === null ? "as long as the session" : `until ${clock(approval.expires_at)}`;
    const take = h("button", { type: "button", class: "quiet small", "aria-label": `Take back the approval of ${approval.tool}`, on: { click: () => this.#takeBack(approval, take) } }, "Take back");
    const what = h("p", {}, h("code", {}, approval.tool), ...patternWords(approval.arguments), ` ${where}, ${until}`);
    return h("li", {}, h("div", {}, what, h("p", { class: "meta" }, `Approved${byKey(approval.by)}, ${clock(approval.created_at)}`)), take);
  }

  async #takeBack(approval, button) {
    button.disabled = true;
    try {
      await client.deleteApproval(approval.id);
      this.announce(`${approval.tool} is asked about again.`);
    } catch (error) {
      if (!(error instanceof ServerProblem)) throw error;
      if (error.status !== 404) this.announce(error.text); // it was taken back elsewhere, or has ended
    }
    await this.load();
    document.getElementById("standing-title")?.focus();
  }
}

/** What the arguments of a call must be, as text. */
function patternWords(patterns) {
  return Object.entries(patterns).flatMap(([name, pattern], index) => [index ? " and " : " with ", h("code", {}, "like" in pattern ? `${name} like ${pattern.like}` : `${name} = ${JSON.stringify(pattern.equals)}`)]);
}
