// The event streams of the page: resumed after a lost connection, and closed while the tab is hidden.

import { client } from "./api.js";

// A browser has six connections to a server, for all tabs together. A hidden tab soon closes its connection, so that
// one is left for a stop. It resumes when the tab is shown again.
const UNSEEN = 5_000;

/** When a stream is read. `hangUp` closes a connection that may be dead; reading resumes on a new one. */
export class Line {
  /** `away()` says whether the tab is hidden, or counts as hidden. */
  constructor(away) {
    this.away = away;
    this.hangUp = () => {};
    this.looks = new EventTarget();
  }

  /** Check again whether the tab is hidden. */
  look() {
    this.looks.dispatchEvent(new Event("look"));
  }

  /** Wait until this tab is looked at. */
  open(signal) {
    if (!this.away()) return undefined;
    return new Promise((resolve) => {
      const places = [[document, "visibilitychange"], [globalThis, "focus"], [this.looks, "look"], [signal, "abort"]];
      const done = () => {
        if (this.away() && !signal.aborted) return;
        for (const [where, what] of places) where.removeEventListener(what, done);
        resolve();
      };
      for (const [where, what] of places) where.addEventListener(what, done);
    });
  }

  /** Call `leave` when the connection is to be closed and opened again. Returns a function that ends this. */
  watch(leave) {
    let unseen = 0;
    const look = () => {
      clearTimeout(unseen);
      if (this.away()) unseen = setTimeout(leave, UNSEEN);
    };
    const places = [[globalThis, "online", leave], [document, "visibilitychange", look], [globalThis, "blur", look], [globalThis, "focus", look], [this.looks, "look", look]];
    for (const [where, what, listener] of places) where.addEventListener(what, listener);
    this.hangUp = leave;
    look();
    return () => {
      clearTimeout(unseen);
      for (const [where, what, listener] of places) where.removeEventListener(what, listener);
      this.hangUp = () => {};
    };
  }
}

/**
 * Call `onEvent(event, at)` for each event of a run, once and in order, from the first to the last; `at` is when it
 * happened, in seconds since the epoch, or null when that is not known any more. `onLine(error)` says that the connection
 * was lost, `onLine(null)` that it is there. Returns after the last event or when `signal` fires; throws `ServerProblem`
 * when there is no such run.
 */
export async function follow(id, { onEvent, onLine, signal, line }) {
  const options = { signal, gate: line, patience: Infinity, onConnection: onLine };
  for await (const { event, at } of client.streamEvents(id, options)) onEvent(event, at);
}

/** Call `onChange` for each change in the list of runs, beginning with the current list, until `signal` fires. */
export async function followRuns({ onChange, onLine, signal, line }) {
  const options = { signal, gate: line, patience: Infinity, onConnection: onLine };
  for await (const change of client.streamChanges(options)) onChange(change);
}
