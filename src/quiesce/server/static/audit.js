// The audit: who has started, stopped, answered, steered and deleted what, the newest first.

import { client } from "./api.js";
import { h, say, show } from "./dom.js";
import { setTitle } from "./notifications.js";
import { clock } from "./words.js";

const PAGE = 100;
const DONE = {
  start: "Started",
  stop: "Stopped",
  stop_tool: "Stopped a tool",
  steer: "Steered",
  pause: "Paused",
  unpause: "Resumed",
  approve: "Approved",
  deny: "Denied",
  answer: "Answered",
  withdraw: "Withdrew the question",
  continue: "Continued",
  undo: "Undid",
  delete_run: "Deleted the run",
  delete_session: "Deleted the session",
  allow: "Approved in advance",
  disallow: "Took back an approval",
};
const SERVER = { deadline: "the time limit", disconnect: "no client was connected", shutdown: "the server shut down", budget: "the budget", local: "this machine" };

export function openPage(place, shell) {
  const page = new AuditPage(shell);
  place.append(page.element);
  setTitle("Audit · Quiesce");
  page.live();
  return () => page.left.abort();
}

class AuditPage {
  constructor(shell) {
    this.shell = shell;
    this.left = new AbortController();
    this.next = null;
    this.filter = h("select", { id: "audit-filter", "aria-label": "Which actions", on: { change: () => this.#load() } }, h("option", { value: "" }, "Everything"), ...Object.entries(DONE).map(([value, label]) => h("option", { value }, label)));
    this.status = h("p", { class: "meta", role: "status" }, "Loading");
    this.rows = h("tbody", { role: "rowgroup" });
    const head = h("tr", { role: "row" }, ...["When", "Who", "What", "Session", "Details"].map((name) => h("th", { scope: "col", role: "columnheader" }, name)));
    this.table = h("div", { class: "scroll card", tabindex: 0, role: "region", "aria-label": "What was done", hidden: true }, h("table", { class: "audit", role: "table" }, h("thead", { role: "rowgroup" }, head), this.rows));
    this.more = h("button", { type: "button", hidden: true, on: { click: () => this.#load(this.next) } }, "Show older entries");
    this.element = h("div", { class: "page" }, h("h1", {}, "Audit"), h("div", { class: "list-head" }, this.status, this.filter), this.table, this.more);
  }

  /** Load the newest entries, and again after each start, end or question of a run. */
  live() {
    let known = "";
    this.shell.feed.listen(() => {
      const now = [...this.shell.feed.runs.values()].map((run) => `${run.id}${run.state}${run.interrupts.length}`).join();
      if (now !== known && this.rows.childElementCount <= PAGE) this.#load();
      known = now;
    }, this.left.signal);
    this.#load();
  }

  /** Load the newest entries, or those before a number, below the others. */
  async #load(before = null) {
    const asked = (this.asked = {});
    try {
      const query = { limit: PAGE, ...(before ? { before } : {}), ...(this.filter.value ? { action: this.filter.value } : {}) };
      const page = await client.showAudit(query);
      if (this.asked !== asked || this.left.signal.aborted) return;
      if (!before) this.rows.replaceChildren();
      this.rows.append(...page.entries.map((entry) => row(entry, this.shell.feed.nameOf(entry.session))));
      this.next = page.next;
      show(this.more, page.next !== null);
      show(this.table, this.rows.childElementCount > 0);
      say(this.status, this.rows.childElementCount ? "The newest first. What was deleted stays here." : "Nothing was done yet.");
    } catch (error) {
      if (!this.left.signal.aborted) say(this.status, error.text ?? String(error));
    }
  }
}

function row(entry, session) {
  const what = DONE[entry.action] ?? entry.action;
  const isGone = entry.action.startsWith("delete");
  const link = entry.run && !isGone ? h("a", { href: `#/runs/${encodeURIComponent(entry.run)}` }, what) : what;
  const when = h("time", { datetime: new Date(entry.at * 1000).toISOString() }, clock(entry.at));
  const cells = [when, SERVER[entry.who] ?? entry.who, link, h("span", { class: "session-name", title: entry.session }, session), entry.detail];
  return h("tr", { role: "row" }, ...cells.map((each) => h("td", { role: "cell", dir: "auto" }, each)));
}
