// The title of the tab, and notifications of the system when an agent asks something while the tab is hidden.

import { h, say, show } from "./dom.js";

const WANTED = "quiesce.notify";
let words = "Quiesce";
let waiting = 0;

/** Name the page. The number of questions that wait is in front of it. */
export function setTitle(text) {
  words = text;
  document.title = waiting ? `(${waiting}) ${words}` : words;
}

/** Whether this browser can notify, from this address: only `https` and the machine's own. */
function isPossible() {
  return "Notification" in globalThis && isSecureContext && Boolean(navigator.locks);
}

function isWanted() {
  return isPossible() && Notification.permission === "granted" && localStorage.getItem(WANTED) === "yes";
}

/** Tells of new questions. One tab of a browser does, and keeps its list of runs open for that while it is hidden. */
export class Notifier {
  constructor(feed, go) {
    this.feed = feed;
    this.go = go;
    this.known = null; // the ids of the questions that were there
    this.isTeller = false;
    feed.listen(() => this.#look());
    if (isWanted()) this.#begin();
  }

  /** Begin or end; the person has pressed the button. */
  async toggle() {
    if (isWanted()) {
      localStorage.removeItem(WANTED);
      this.release?.();
      return;
    }
    if ((await Notification.requestPermission()) !== "granted") return;
    localStorage.setItem(WANTED, "yes");
    this.#begin();
  }

  /** A switch for the page of the inbox. */
  control() {
    const hint = h("span", { class: "hint" });
    const press = h("button", { type: "button", class: "quiet small", id: "notify", on: { click: async () => { await this.toggle(); look(); } } });
    const look = () => {
      show(press, isPossible() && Notification.permission !== "denied");
      say(press, isWanted() ? "Do not notify me" : "Notify me");
      press.setAttribute("aria-pressed", String(isWanted()));
      say(hint, isWanted() ? "This browser tells you when an agent asks something." : isPossible() && Notification.permission === "denied" ? "Notifications of this page are blocked in the browser." : "");
    };
    look();
    return h("p", { class: "row notify" }, press, hint);
  }

  #begin() {
    navigator.locks.request("quiesce.notify", () => new Promise((resolve) => {
      this.isTeller = true;
      this.feed.stay(true);
      this.release = () => {
        this.isTeller = false;
        this.feed.stay(false);
        resolve();
      };
    }));
  }

  #look() {
    const asked = new Map(this.feed.waiting.flatMap((run) => run.interrupts.map((each) => [each.id, { run, each }])));
    waiting = asked.size;
    setTitle(words);
    const isNew = (id) => this.known !== null && !this.known.has(id);
    for (const [id, { run, each }] of asked) if (isNew(id) && this.isTeller && !document.hasFocus()) this.#tell(run, each);
    this.known = new Set(asked.keys());
  }

  #tell(run, { id, kind, tool_name: tool }) {
    const title = kind === "approval" ? `Approve ${tool}?` : kind === "limit" ? `${run.agent} has reached a limit` : `${run.agent} has a question`;
    const shown = new Notification(title, { body: run.prompt, tag: id });
    shown.addEventListener("click", () => {
      globalThis.focus();
      this.go(`#/runs/${encodeURIComponent(run.id)}`);
      shown.close();
    });
  }
}
