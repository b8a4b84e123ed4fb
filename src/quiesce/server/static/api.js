// The server's HTTP interface, relative to where this page is served, so that it also works below a path.

const BASE = new URL(".", document.baseURI);
const KEY = "quiesce.key";

/** The error response of the server, or why the server could not be reached (`status` 0). */
export class ApiError extends Error {
  constructor(status, code, message, todo) {
    super(message);
    this.status = status;
    this.code = code;
    this.todo = todo;
  }

  /** The message and what to do, as one text. */
  get text() {
    return this.todo ? `${this.message} ${this.todo}` : this.message;
  }

  /** Whether a retry may succeed. */
  get passing() {
    return this.status === 0 || this.status === 429 || this.status >= 502;
  }
}

let askForKey = () => Promise.reject(new ApiError(401, "unauthorized", "A key is needed.", ""));

/** Set the function that asks the user for an API key when the server needs one. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** Keep the key for this tab. */
export function useKey(key) {
  sessionStorage.setItem(KEY, key);
}

/** A request with the API key; the user is asked for one when the server needs it. Throws `ApiError`. */
export async function request(path, { method = "GET", body, headers = {}, signal } = {}) {
  const all = { ...headers };
  const key = sessionStorage.getItem(KEY);
  if (key) all.Authorization = `Bearer ${key}`;
  if (body !== undefined) all["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(new URL(path, BASE), {
      method,
      headers: all,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The server cannot be reached.", "");
  }
  noteClock(response.headers.get("date"));
  if (response.ok) return response;
  const problem = await problemOf(response);
  if (response.status === 401) {
    await askForKey(key ? problem.message : "");
    return request(path, { method, body, headers, signal });
  }
  throw problem;
}

let skew = 0;

function noteClock(date) {
  const theirs = Date.parse(date ?? "") / 1000;
  if (!Number.isNaN(theirs)) skew = theirs - Date.now() / 1000;
}

/** How far the server's clock is ahead of this one, in seconds; 0 for a difference too small to measure. */
export function clockSkew() {
  return Math.abs(skew) > 2 ? skew : 0;
}

async function problemOf(response) {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // The response comes from a proxy, not from Quiesce.
  }
  const message = String(error.message ?? `The server answered ${response.status}.`);
  return new ApiError(response.status, String(error.code ?? ""), message, String(error.todo ?? ""));
}

async function json(path, options) {
  return (await request(path, options)).json();
}

const run = (id) => `runs/${encodeURIComponent(id)}`;
const post = (path, body = {}, headers = {}) => json(path, { method: "POST", body, headers });

export const listRuns = (query) => json(`runs?${new URLSearchParams(query)}`);
export const listAgents = () => json("agents");
export const getRun = (id) => json(run(id));
export const getSession = (name) => json(`sessions/${encodeURIComponent(name)}`);
export const listApprovals = () => json("approvals");
export const takeBack = (id) => request(`approvals/${encodeURIComponent(id)}`, { method: "DELETE" });
export const getAudit = (query) => json(`audit?${new URLSearchParams(query)}`);
export const getUsage = (query = {}) => json(`usage?${new URLSearchParams(query)}`);
export const startRun = (wanted, key) => post("runs", wanted, { "Idempotency-Key": key });
export const cancelRun = (id, mode, reason) => post(`${run(id)}/cancel`, { mode, reason });
export const undoRun = (id) => post(`${run(id)}/undo`);
export const continueRun = (id) => post(`${run(id)}/continue`);
export const resumeRun = (id, answers) => post(`${run(id)}/resume`, { answers });
export const steerRun = (id, text) => request(`${run(id)}/steer`, { method: "POST", body: { text } });
export const cancelTool = (id, call) =>
  request(`${run(id)}/tools/${encodeURIComponent(call)}/cancel`, {
    method: "POST",
    body: { reason: "stopped in the console" },
  });
export const openEvents = (id, after, signal) => openStream(`${run(id)}/events`, after, signal);
export const openRuns = (after, signal) => openStream("events", after, signal);

function openStream(path, after, signal) {
  const headers = { Accept: "text/event-stream", ...(after ? { "Last-Event-ID": String(after) } : {}) };
  return request(path, { headers, signal });
}

/** Retry an action until it succeeds, with a longer delay each time. Errors that no retry can fix are thrown. */
export async function insist(action, { signal, onRetry = () => {} }) {
  for (let attempt = 0; ; attempt++) {
    try {
      return await action();
    } catch (error) {
      if (!(error instanceof ApiError) || !error.passing || signal.aborted) throw error;
      onRetry(error);
      await pause(backOff(attempt), signal);
      if (signal.aborted) throw error;
    }
  }
}

/** The delay before the next retry, in ms: from a quarter of a second to eight seconds, with jitter. */
export function backOff(attempt) {
  return Math.min(8000, 250 * 2 ** attempt) * (0.75 + Math.random() / 2);
}

/** Wait; end early when the network comes back or the signal fires. */
export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      removeEventListener("online", done);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    addEventListener("online", done);
    signal?.addEventListener("abort", done);
    if (signal?.aborted) done();
  });
}
