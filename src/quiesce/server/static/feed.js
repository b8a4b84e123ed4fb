// The list of runs, live, for everything on the page that shows it: one connection for the tab.

import { followRuns, Line } from "./follow.js";

// The list has so many runs, the newest; `GET /runs` has the others.
const FULL = 200;
const MADE_UP = /^console-[0-9a-f]{16}$/;

/** The runs by id. A listener is called after each change, and at once if the list is there. */
export class Feed {
  constructor() {
    this.runs = new Map();
    this.older = new Map(); // those that were looked for, beyond what the list has
    this.isLoaded = false;
    this.listeners = new Set();
    this.isAlone = true; // no other stream is open in this tab
    this.isKept = false; // the list is read while the tab is hidden too, to notify of questions
    // A browser has six connections to a server. A window without the focus keeps one, for what it mainly shows.
    this.line = new Line(() => !this.isKept && (document.hidden || (!this.isAlone && !document.hasFocus())));
  }

  /** All runs that are known here. */
  get all() {
    return new Map([...this.older, ...this.runs]);
  }

  /** What a person calls a session: its name, or its first prompt if the console has made the name up. */
  nameOf(session) {
    if (!MADE_UP.test(session)) return session;
    const runs = [...this.all.values()].filter((run) => run.session === session);
    return runs.reduce((first, run) => (run.created_at < first.created_at ? run : first), runs[0])?.prompt || session;
  }

  /** Whether the server may have more runs than it sends by itself. */
  get isFull() {
    return this.runs.size >= FULL;
  }

  /** Add runs that were looked for. They change as the others do. */
  add(runs) {
    for (const run of runs) this.older.set(run.id, run);
    for (const listener of [...this.listeners]) listener(null);
  }

  /** The runs with a question that has no answer, the oldest first. */
  get waiting() {
    return [...this.all.values()].filter((run) => run.interrupts.length > 0).sort((a, b) => a.created_at - b.created_at);
  }

  /** Read the list for as long as the page is open. `onLine` as for `follow`. */
  async read(onLine) {
    const { signal } = new AbortController();
    await followRuns({ signal, line: this.line, onLine, onChange: (change) => this.#changed(change) });
  }

  /** Whether to read the list while the tab is hidden too. */
  stay(isKept) {
    this.isKept = isKept;
    this.line.look();
  }

  /** Call `listener(id)` after each change, with the run that changed if it is one, until `signal` fires. */
  listen(listener, signal) {
    this.listeners.add(listener);
    signal?.addEventListener("abort", () => this.listeners.delete(listener));
    if (this.isLoaded) listener(null);
  }

  #changed(change) {
    if (change.type === "list") this.runs = new Map(change.runs.map((run) => [run.id, run]));
    else if (change.type === "gone") for (const runs of [this.runs, this.older]) runs.delete(change.id);
    else this.runs.set(change.run.id, change.run);
    this.isLoaded = true;
    for (const listener of [...this.listeners]) listener(change.type === "run" ? change.run.id : null);
  }
}
