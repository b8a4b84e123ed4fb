// Reads event streams with fetch, because EventSource cannot send an API key. Resumes after a lost connection.

import { ApiError, backOff, getRun, openEvents, openRuns, pause } from "./api.js";

// The server sends a heartbeat every 15 s by default. After three times that without data, the connection is dead.
const SILENCE = 45_000;
// A browser has six connections to a server, for all tabs together. A hidden tab soon closes its connection, so that
// one is left for a stop. It resumes when the tab is shown again.
const UNSEEN = 5_000;

/** The connection of the event stream. `hangUp` closes one that may be dead; reading resumes on a new one. */
export class Line {
  hangUp = () => {};
}

/**
 * Call `onEvent(event, at)` for each event of a run, once and in order, from the first to the last; `at` is when it
 * happened, in seconds since the epoch, or null when that is not known any more. `onLine(error)` says that the connection was lost, `onLine(null)` that it is
 * there. `stay()` says whether to keep reading while the tab is hidden. Returns after the last event or when `signal` fires;
 * throws `ApiError` when there is no such run.
 */
export async function follow(id, { onEvent, onLine, signal, line = new Line(), stay = () => false }) {
  const place = { last: 0, ended: false };
  const onFrame = (frame) => deliver(frame, place, onEvent);
  await readAgain({
    open: (aborted) => openEvents(id, place.last, aborted),
    place,
    onFrame,
    onLine,
    signal,
    line,
    away: () => document.hidden && !stay(),
    isOver: () => isOver(id),
  });
}

/**
 * Call `onChange` for each change in the list of runs, beginning with the current list, until `signal` fires. `onLine` as
 * for `follow`; `away()` says when not to read. Throws `ApiError` when there is no such list.
 */
export async function followRuns({ onChange, onLine, signal, away }) {
  const place = { last: "", ended: false };
  const onFrame = (frame) => {
    place.last = frame.id ?? place.last;
    onChange(JSON.parse(frame.data));
  };
  const open = (aborted) => openRuns(place.last, aborted);
  await readAgain({ open, place, onFrame, onLine, signal, line: new Line(), away, isOver: () => false });
}

/** Read a stream; when its connection is lost, resume it. */
async function readAgain({ open, place, onFrame, onLine, signal, line, away, isOver }) {
  for (let attempt = 0; !place.ended && !signal.aborted; ) {
    await back(away, signal);
    if (signal.aborted) return;
    const before = place.last;
    let problem;
    try {
      const left = await read(open, place, { onFrame, onLine, signal, line, away });
      if (left) continue;
      if (place.ended || (place.last === before && (await isOver()))) return;
      problem = new ApiError(0, "cut", "The connection was cut.", "");
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && !error.passing) throw error;
      problem = error;
    }
    attempt = place.last !== before ? 0 : attempt;
    onLine(problem);
    await pause(backOff(attempt++), signal);
  }
}

/** Whether a stream without a last event has no more events: it is so after a crash. */
async function isOver(id) {
  const { run } = await getRun(id);
  return !["queued", "running", "stopping"].includes(run.state);
}

/** Read one stream to its end. Returns whether it was closed on purpose, to be resumed at once. */
async function read(open, place, { onFrame, onLine, signal, line, away }) {
  const connection = new AbortController();
  const timers = {};
  let left = false;
  const hangUp = () => connection.abort();
  const leave = () => {
    left = true;
    hangUp();
  };
  const seenOrNot = () => {
    clearTimeout(timers.unseen);
    if (away()) timers.unseen = setTimeout(leave, UNSEEN);
  };
  const listening = [[signal, "abort", hangUp], [globalThis, "online", leave], [document, "visibilitychange", seenOrNot], [globalThis, "blur", seenOrNot], [globalThis, "focus", seenOrNot]];
  for (const [where, what, listener] of listening) where.addEventListener(what, listener);
  line.hangUp = leave;
  timers.watchdog = setTimeout(hangUp, SILENCE);
  seenOrNot();
  try {
    const response = await open(connection.signal);
    onLine(null);
    if (response.status === 204) return false; // the stream has no more events
    const parser = new Parser(onFrame);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      clearTimeout(timers.watchdog);
      if (done) break;
      timers.watchdog = setTimeout(hangUp, SILENCE);
      parser.push(value);
      if (place.ended) break;
    }
    return false;
  } catch (error) {
    if (left && !signal.aborted) return true;
    throw error;
  } finally {
    Object.values(timers).forEach(clearTimeout);
    for (const [where, what, listener] of listening) where.removeEventListener(what, listener);
    line.hangUp = () => {};
    connection.abort();
  }
}

/** Wait until this tab is looked at again. */
function back(away, signal) {
  if (!away()) return undefined;
  return new Promise((resolve) => {
    const places = [[document, "visibilitychange"], [globalThis, "focus"], [signal, "abort"]];
    const done = () => {
      if (away() && !signal.aborted) return;
      for (const [where, what] of places) where.removeEventListener(what, done);
      resolve();
    };
    for (const [where, what] of places) where.addEventListener(what, done);
  });
}

function deliver(frame, place, onEvent) {
  const number = Number(frame.id);
  if (number && number <= place.last) return; // sent twice around a cut
  if (number) place.last = number;
  const event = JSON.parse(frame.data);
  place.ended ||= event.type === "run_ended";
  onEvent(event, frame.at ? Number(frame.at) : null);
}

/** Parses server-sent events from chunks of text that may be cut anywhere. */
export class Parser {
  constructor(onFrame) {
    this.onFrame = onFrame;
    this.rest = "";
    this.frame = {};
  }

  push(text) {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop();
    for (const line of lines) this.#line(line.endsWith("\r") ? line.slice(0, -1) : line);
  }

  #line(line) {
    if (line === "") {
      const frame = this.frame;
      this.frame = {};
      if (frame.data !== undefined) this.onFrame(frame);
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment: the heartbeat
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    this.frame[name] = name === "data" && this.frame.data !== undefined ? `${this.frame.data}\n${value}` : value;
  }
}
