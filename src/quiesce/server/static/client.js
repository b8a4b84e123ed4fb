// A client for a Quiesce server: one module without dependencies, for browsers and for Node. Its types are in client.d.ts,
// which is made from the server's OpenAPI document. The console uses it for every request.

// The server sends a heartbeat every 15 s by default. After three times that without data, the connection is dead.
const SILENCE = 45_000;
const PATIENCE = 30_000;
const ACTIVE = ["queued", "running", "stopping"];

/** Why a request failed: the server refused it, or could not be reached (`status` 0). */
export class ServerProblem extends Error {
  constructor(status, code, message, todo = "") {
    super(message);
    this.name = "ServerProblem";
    this.status = status;
    this.code = code;
    this.todo = todo;
  }

  /** The message and what to do, as one text. */
  get text() {
    return this.todo ? `${this.message} ${this.todo}` : this.message;
  }

  /** Whether a retry may succeed. */
  get isPassing() {
    return this.status === 0 || this.status === 429 || this.status >= 502;
  }
}

/** One server. Each operation of its OpenAPI document is a method: `show_run` is `showRun`. */
export class Client {
  #url;
  #key;
  #fetch;
  #keyNeeded;

  /**
   * `url` is where the server is, also below a path. `key` is an API key, or a function that returns one. `keyNeeded(problem)` is
   * called when the server refuses the key; when its promise resolves, the request is sent again. `fetch` replaces the global one.
   */
  constructor(url, { key = "", keyNeeded = null, fetch = (...given) => globalThis.fetch(...given) } = {}) {
    this.#url = new URL(String(url).endsWith("/") ? url : `${url}/`);
    this.#key = typeof key === "function" ? key : () => key;
    this.#keyNeeded = keyNeeded;
    this.#fetch = fetch;
  }

  // --- Runs ---------------------------------------------------------------------------------------------------------

  startRun(body, { idempotencyKey, ...options } = {}) {
    return this.#json("POST", "runs", { body, headers: idempotencyKey ? { "Idempotency-Key": idempotencyKey } : {}, ...options });
  }

  listRuns({ signal, ...query } = {}) {
    return this.#json("GET", "runs", { query, signal });
  }

  showRun(id, options) {
    return this.#json("GET", path`runs/${id}`, options);
  }

  deleteRun(id, options) {
    return this.#json("DELETE", path`runs/${id}`, options);
  }

  cancelRun(id, body = {}, { wait, ...options } = {}) {
    return this.#json("POST", path`runs/${id}/cancel`, { body, query: { wait }, ...options });
  }

  steerRun(id, body, options) {
    return this.#json("POST", path`runs/${id}/steer`, { body, ...options });
  }

  pauseRun(id, body = {}, options = {}) {
    return this.#json("POST", path`runs/${id}/pause`, { body, ...options });
  }

  resumeRun(id, body, options) {
    return this.#json("POST", path`runs/${id}/resume`, { body, ...options });
  }

  undoRun(id, body = {}, { wait, ...options } = {}) {
    return this.#json("POST", path`runs/${id}/undo`, { body, query: { wait }, ...options });
  }

  continueRun(id, body = {}, options = {}) {
    return this.#json("POST", path`runs/${id}/continue`, { body, ...options });
  }

  cancelTool(id, call, body = {}, options = {}) {
    return this.#json("POST", path`runs/${id}/tools/${call}/cancel`, { body, ...options });
  }

  // --- Sessions, approvals and the server ---------------------------------------------------------------------------

  listSessions(options) {
    return this.#json("GET", "sessions", options);
  }

  showSession(name, options) {
    return this.#json("GET", path`sessions/${name}`, options);
  }

  deleteSession(name, options) {
    return this.#json("DELETE", path`sessions/${name}`, options);
  }

  listApprovals(options) {
    return this.#json("GET", "approvals", options);
  }

  deleteApproval(approval, options) {
    return this.#json("DELETE", path`approvals/${approval}`, options);
  }

  showAudit({ signal, ...query } = {}) {
    return this.#json("GET", "audit", { query, signal });
  }

  showUsage({ signal, ...query } = {}) {
    return this.#json("GET", "usage", { query, signal });
  }

  showUsageByKey({ signal, ...query } = {}) {
    return this.#json("GET", "usage/keys", { query, signal });
  }

  listAgents(options) {
    return this.#json("GET", "agents", options);
  }

  showFleet(options) {
    return this.#json("GET", "fleet", options);
  }

  health(options) {
    return this.#json("GET", "healthz", options);
  }

  // --- Streams ------------------------------------------------------------------------------------------------------

  /**
   * The events of a run, past and future, to its end, each once and in order: { number, event, at }. `at` is in seconds since
   * the epoch, or null when it is not known any more. A lost connection is made again, from the event after the last.
   */
  async *streamEvents(id, { after = 0, ...options } = {}) {
    const isOver = async () => !ACTIVE.includes((await this.showRun(id, { signal: options.signal })).run.state);
    const place = { last: after };
    for await (const frame of this.#frames(path`runs/${id}/events`, place, isOver, options)) {
      const number = Number(frame.id);
      if (number && number <= place.last) continue; // sent twice around a cut
      if (number) place.last = number;
      const event = JSON.parse(frame.data);
      yield { number, event, at: frame.at ? Number(frame.at) : null };
      if (event.type === "run_ended") return;
    }
  }

  /** The changes in the list of runs, for ever. The first is the whole list. */
  async *streamChanges({ after = "", ...options } = {}) {
    const place = { last: after };
    for await (const frame of this.#frames("events", place, () => false, options)) {
      place.last = frame.id ?? place.last;
      yield JSON.parse(frame.data);
    }
  }

  /** The frames of a stream over any number of connections. Ends when `isOver()`, or when the signal fires. */
  async *#frames(where, place, isOver, { signal, patience = PATIENCE, onConnection = () => {}, gate = null }) {
    let attempt = 0;
    let lost = null; // since when nothing has come
    while (!signal?.aborted) {
      await gate?.open(signal);
      if (signal?.aborted) return;
      const before = place.last;
      let problem = new ServerProblem(0, "cut", "The connection was cut.");
      try {
        const left = yield* this.#connection(where, place, { signal, onConnection, gate });
        if (left) continue;
        if (place.last === before && (await isOver())) return;
      } catch (error) {
        if (signal?.aborted) return;
        if (error instanceof ServerProblem && !error.isPassing) throw error;
        problem = error;
      }
      if (place.last !== before) [attempt, lost] = [0, null];
      lost ??= Date.now();
      if (Date.now() - lost > patience) throw problem;
      onConnection(problem);
      await pause(backOff(attempt++), signal);
    }
  }

  /** The frames of one connection. Returns whether the gate has closed it, to be opened again at once. */
  async *#connection(where, place, { signal, onConnection, gate }) {
    const connection = new AbortController();
    const hangUp = () => connection.abort();
    let left = false;
    const unwatch = gate?.watch(() => {
      left = true;
      hangUp();
    });
    signal?.addEventListener("abort", hangUp);
    let watchdog = setTimeout(hangUp, SILENCE);
    try {
      const headers = { Accept: "text/event-stream", ...(place.last ? { "Last-Event-ID": String(place.last) } : {}) };
      const response = await this.#request("GET", where, { headers, signal: connection.signal });
      onConnection(null);
      if (response.status === 204) return false; // the stream has no more events
      const parser = new Parser();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        clearTimeout(watchdog);
        if (done) return false;
        watchdog = setTimeout(hangUp, SILENCE);
        yield* parser.push(value);
      }
    } catch (error) {
      if (left && !signal?.aborted) return true;
      throw error;
    } finally {
      clearTimeout(watchdog);
      signal?.removeEventListener("abort", hangUp);
      unwatch?.();
      connection.abort();
    }
  }

  // --- Requests -----------------------------------------------------------------------------------------------------

  async #json(method, where, options = {}) {
    const response = await this.#request(method, where, options);
    return response.status === 204 ? undefined : response.json();
  }

  async #request(method, where, options) {
    const { body, query = {}, headers = {}, signal } = options;
    const address = new URL(where, this.#url);
    for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== null) address.searchParams.set(name, String(value));
    const key = this.#key();
    const all = { ...headers, ...(key ? { Authorization: `Bearer ${key}` } : {}), ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
    let response;
    try {
      response = await this.#fetch(address, { method, headers: all, body: body === undefined ? undefined : JSON.stringify(body), signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServerProblem(0, "unreachable", "The server cannot be reached.");
    }
    if (response.ok) return response;
    const problem = await problemOf(response);
    if (response.status !== 401 || !this.#keyNeeded) throw problem;
    const isLate = this.#key() !== key && !options.isLate; // sent before there was this key: once more, with it
    if (!isLate) await this.#keyNeeded(key ? problem.message : "");
    return this.#request(method, where, { ...options, isLate });
  }
}

/** A path with quoted parts. */
function path(texts, ...parts) {
  return texts.map((text, index) => text + (index < parts.length ? encodeURIComponent(parts[index]) : "")).join("");
}

async function problemOf(response) {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // The response comes from a proxy, not from Quiesce.
  }
  const message = String(error.message ?? `The server answered ${response.status}.`);
  return new ServerProblem(response.status, String(error.code ?? ""), message, String(error.todo ?? ""));
}

/** Retry an action until it succeeds, with a longer delay each time. Errors that no retry can fix are thrown. */
export async function insist(action, { signal, onRetry = () => {} } = {}) {
  for (let attempt = 0; ; attempt++) {
    try {
      return await action();
    } catch (error) {
      if (!(error instanceof ServerProblem) || !error.isPassing || signal?.aborted) throw error;
      onRetry(error);
      await pause(backOff(attempt), signal);
      if (signal?.aborted) throw error;
    }
  }
}

/** The delay before the next retry, in ms: from a quarter of a second to eight seconds, with jitter. */
function backOff(attempt) {
  return Math.min(8000, 250 * 2 ** attempt) * (0.75 + Math.random() / 2);
}

/** Wait; end early when the browser's network comes back or the signal fires. */
function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      globalThis.removeEventListener?.("online", done);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    globalThis.addEventListener?.("online", done);
    signal?.addEventListener("abort", done);
    if (signal?.aborted) done();
  });
}

/** Parses server-sent events from chunks of text that may be cut anywhere. */
class Parser {
  #rest = "";
  #frame = {};

  /** The frames that are complete with this text. */
  push(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    return lines.map((line) => this.#line(line.endsWith("\r") ? line.slice(0, -1) : line)).filter(Boolean);
  }

  #line(line) {
    if (line === "") {
      const frame = this.#frame;
      this.#frame = {};
      return frame.data === undefined ? null : frame;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return null; // a comment: the heartbeat
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    this.#frame[name] = name === "data" && this.#frame.data !== undefined ? `${this.#frame.data}\n${value}` : value;
    return null;
  }
}
