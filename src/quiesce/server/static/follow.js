// Following a run's events over fetch, which unlike EventSource can send a key; goes on after a cut where it was.

import { ApiError, backOff, getRun, openEvents, pause } from "./api.js";

// The server says something every 15 s by default. When it has been silent for three times that, the line is dead.
const SILENCE = 45_000;

/**
 * Hand each event of a run to `onEvent(event, at)` once and in order, from the first, until the last; `at` is when it
 * happened, in seconds since the epoch. `onLine(error)` says that the connection was lost, `onLine(null)` that it is
 * there. Returns after the last event or when `signal` fires; throws `ApiError` when there is no such run.
 */
export async function follow(id, { onEvent, onLine, signal }) {
  const place = { last: 0, ended: false };
  for (let attempt = 0; !place.ended && !signal.aborted; ) {
    const before = place.last;
    let problem;
    try {
      await read(id, place, { onEvent, onLine, signal });
      if (place.ended || (place.last === before && (await isOver(id)))) return;
      problem = new ApiError(0, "cut", "The connection was cut.", "");
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && !error.passing) throw error;
      problem = error;
    }
    attempt = place.last > before ? 0 : attempt;
    onLine(problem);
    await pause(backOff(attempt++), signal);
  }
}

/** Whether a stream that ended without an end, and had nothing new, has no more to come: so it is after a crash. */
async function isOver(id) {
  const { run } = await getRun(id);
  return !["queued", "running", "stopping"].includes(run.state);
}

async function read(id, place, { onEvent, onLine, signal }) {
  const line = new AbortController();
  const hangUp = () => line.abort();
  signal.addEventListener("abort", hangUp);
  let watchdog = setTimeout(hangUp, SILENCE);
  try {
    const response = await openEvents(id, place.last, line.signal);
    onLine(null);
    const parser = new Parser((frame) => deliver(frame, place, onEvent));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      clearTimeout(watchdog);
      if (done) break;
      watchdog = setTimeout(hangUp, SILENCE);
      parser.push(value);
      if (place.ended) break;
    }
  } finally {
    clearTimeout(watchdog);
    signal.removeEventListener("abort", hangUp);
    line.abort();
  }
}

function deliver(frame, place, onEvent) {
  const number = Number(frame.id);
  if (number && number <= place.last) return; // sent twice around a cut
  if (number) place.last = number;
  const event = JSON.parse(frame.data);
  place.ended ||= event.type === "run_ended";
  onEvent(event, frame.at ? Number(frame.at) : Date.now() / 1000);
}

/** Server-sent events out of a text that arrives in pieces cut anywhere. */
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
