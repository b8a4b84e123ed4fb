// The server that this page comes from: its client, the API key of this tab, and its clock.

import { Client } from "./client.js";

export { insist, ServerProblem } from "./client.js";

const KEY = "quiesce.key";
let askForKey = () => Promise.resolve();
let skew = 0;

/** The operations of the server, relative to where this page is served, so that it also works below a path. */
export const client = new Client(new URL(".", document.baseURI), {
  key: () => sessionStorage.getItem(KEY) ?? "",
  keyNeeded: (problem) => askForKey(problem),
  fetch: async (address, options) => {
    const response = await fetch(address, { ...options, cache: "no-store", credentials: "same-origin" });
    noteClock(response.headers.get("date"));
    return response;
  },
});

/** Set the function that asks the user for an API key when the server needs one. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** Keep the key for this tab. */
export function useKey(key) {
  sessionStorage.setItem(KEY, key);
}

/** Starts runs. A request that is pressed again because its response was lost starts no second run. */
export class Starter {
  #last = null; // the request that has no response yet, and its key

  /** Start a run from a request, to which `more(key)` adds what is new in each. Resolves to the run. */
  async start(request, more = () => ({})) {
    const asked = JSON.stringify(request);
    if (this.#last?.asked !== asked) this.#last = { asked, key: random() };
    const { key } = this.#last;
    try {
      const { run } = await client.startRun({ ...request, ...more(key) }, { idempotencyKey: key });
      this.#last = null;
      return run;
    } catch (error) {
      if (!error.isPassing) this.#last = null;
      throw error;
    }
  }
}

function random() {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function noteClock(date) {
  const theirs = Date.parse(date ?? "") / 1000;
  if (!Number.isNaN(theirs)) skew = theirs - Date.now() / 1000;
}

/** How far the server's clock is ahead of this one, in seconds; 0 for a difference too small to measure. */
export function clockSkew() {
  return Math.abs(skew) > 2 ? skew : 0;
}
