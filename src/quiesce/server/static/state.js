// Where a run stands, as its page knows it, and what its state line says of that: a few words, a tone, and a time that
// is not read out.

import { duration, ending, stateOf } from "./words.js";

const MODES = ["after_turn", "after_tools", "now", "kill"];

/** Whether the server has said that the run is over. */
export function hasEnded(run) {
  return run.state === "ended" || run.state === "crashed";
}

/** What the page of a run that goes on is in: "running", or how it is being stopped. */
export function modeOf(known) {
  const asked = hardestStop(known);
  if (asked === null) return "running";
  return { kill: "forcing", now: "stopping" }[asked] ?? "patient";
}

/** The hardest stop that is known to have been asked for, here (`stopping`) or elsewhere; null when none was. */
function hardestStop({ run, story, stopping }) {
  const told = run?.state === "stopping" ? run.mode : null;
  const [here, ...elsewhere] = [stopping?.mode, story.stop?.cause.mode, told].map((mode) => MODES.indexOf(mode));
  // Force that was asked for elsewhere may be asked for again: nobody knows here whether it was delivered.
  return MODES[Math.max(here, Math.min(Math.max(...elsewhere), MODES.indexOf("now")))] ?? null;
}

/**
 * [words, tone, time] for a run as it is known: `run` as the server last showed it, `story` as its events tell it,
 * `stopping` if Stop was pressed here, `mode` of the composer, `now` by the server's clock.
 */
export function stateWords({ run, story, stopping, mode, now }) {
  if (story.end && run.state === "ended" && !run.interrupts.length && story.end.stop_reason === "interrupt") return [...stateOf(run), ""];
  if (story.end?.stop_reason === "interrupt") return [...ending("interrupt"), ""];
  if (story.end) return [...ending(story.end.stop_reason), tookWords(run, story)];
  if (hasEnded(run)) return [...stateOf(run), ""];
  if (mode !== "running" || story.stop) return stoppingWords({ story, stopping, mode, now });
  if (run.state === "queued" && story.startedAt === null) return ["Queued", "idle", ""];
  return [story.doing, "live", story.startedAt === null ? "" : seconds(now - story.startedAt)];
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
