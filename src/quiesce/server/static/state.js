// The status of a run on its page: a text, a colour, and a time, which screen readers
// do not announce.

import { duration, ending, stateOf } from "./words.js";

const MODES = ["after_turn", "after_tools", "now", "kill"];

/** Whether the server has reported the end of the run. */
export function hasEnded(run) {
  return run.state === "ended" || run.state === "crashed";
}

/** The composer's mode for a run that has not ended: "running", or how it is being stopped. */
export function modeOf(known) {
  const asked = hardestStop(known);
  if (asked === null) return "running";
  return { kill: "forcing", now: "stopping" }[asked] ?? "patient";
}

/** The most urgent stop that was requested, here (`stopping`) or elsewhere; null without one. */
function hardestStop({ run, story, stopping }) {
  const told = run?.state === "stopping" ? run.mode : null;
  const [here, ...elsewhere] = [stopping?.mode, story.stop?.cause.mode, told].map((mode) => MODES.indexOf(mode));
  // A stop by force that was requested elsewhere may be requested again: it may not have arrived.
  return MODES[Math.max(here, Math.min(Math.max(...elsewhere), MODES.indexOf("now")))] ?? null;
}

/**
 * [text, colour, time] of a run: `run` is the server's last view of it, `story` its events,
 * `stopping` if Stop was pressed here, `pausing` if it is to wait, `mode` of the composer, `now` by the server's clock.
 */
export function stateWords({ run, story, stopping, pausing, mode, now }) {
  if (story.end && run.state === "ended" && !run.interrupts.length && story.end.stop_reason === "interrupt") return [...stateOf(run), ""];
  if (story.end?.stop_reason === "interrupt") return [...ending("interrupt"), ""];
  if (story.end) return [...ending(story.end.stop_reason), tookWords(run, story)];
  if (hasEnded(run)) return [...stateOf(run), ""];
  if (mode !== "running" || story.stop) return stoppingWords({ story, stopping, mode, now });
  if (run.state === "queued" && story.startedAt === null) return ["Queued", "idle", ""];
  if (story.paused) return ["Paused", "idle", ""];
  const doing = pausing ? `${story.doing}, then it pauses` : story.doing;
  return [doing, "live", story.startedAt === null ? "" : seconds(now - story.startedAt)];
}

function tookWords(run, story) {
  if (!story.timeless) return ` after ${duration(story.end.at - story.startedAt)}`;
  return run.ended_at && run.state === "ended" ? ` after ${duration(run.ended_at - run.created_at)}` : "";
}

function stoppingWords({ story, stopping, mode, now }) {
  const waiting = story.runningTools.map((tool) => tool.name);
  const since = seconds(stopping ? (performance.now() - stopping.since) / 1000 : story.stop ? now - story.stop.at : 0);
  const word = mode === "forcing" ? "Forcing the stop" : "Stopping";
  if (stopping && !stopping.delivered && stopping.troubled) return ["Stop not delivered yet: trying again", "bad", since];
  if (mode === "patient") return ["Stopping after this turn", "stopping", since];
  return [waiting.length ? `${word}: waiting for ${waiting.join(", ")}` : word, "stopping", since];
}

function seconds(passed) {
  return `, ${Math.max(0, Math.floor(passed))} s`;
}
