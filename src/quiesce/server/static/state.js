// What the state line of a run's page says: a few words, a tone, and a time that is not read out.

import { duration, ending, stateOf } from "./words.js";

/**
 * [words, tone, time] for a run as it is known: `run` as the server last showed it, `story` as its events tell it,
 * `stopping` if Stop was pressed here, `mode` of the composer, `now` by the server's clock.
 */
export function stateWords({ run, story, stopping, mode, now }) {
  if (story.end && run.state === "ended" && !run.interrupts.length && story.end.stop_reason === "interrupt") return [...stateOf(run), ""];
  if (story.end?.stop_reason === "interrupt") return [...ending("interrupt"), ""];
  if (story.end) return [...ending(story.end.stop_reason), tookWords(run, story)];
  if (run.state === "ended" || run.state === "crashed") return [...stateOf(run), ""];
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
