// The workers and queues of a fleet, the freezes that hold, and the caps that this key's runs count for.

import { client } from "./api.js";
import { h, say } from "./dom.js";
import { setTitle } from "./notifications.js";
import { ago, clock, count, duration, money } from "./words.js";

const EVERY = 5000;
const STATES = { up: ["up", "good"], full: ["full", "live"], draining: ["shutting down", "warn"], lost: ["lost; its runs are taken over", "bad"] };

export function openPage(place) {
  setTitle("Fleet · Quiesce");
  const status = h("p", { class: "meta", role: "status" }, "Loading");
  const body = h("div");
  place.append(h("div", { class: "page" }, h("h1", {}, "Fleet"), status, body));
  let isLeft = false;
  const load = async () => {
    try {
      const fleet = await client.showFleet();
      if (isLeft) return;
      const up = fleet.workers.filter((worker) => worker.state === "up").length;
      say(status, `${up} of ${fleet.workers.length} ${fleet.workers.length === 1 ? "worker" : "workers"} up`);
      body.replaceChildren(...freezes(fleet.freezes), queues(fleet), ...caps(fleet.caps), workers(fleet.workers));
    } catch (error) {
      if (!isLeft) say(status, error.text ?? String(error));
    }
  };
  load();
  const ticker = setInterval(() => !document.hidden && load(), EVERY);
  return () => {
    isLeft = true;
    clearInterval(ticker);
  };
}

function table(caption, head, rows) {
  const names = h("tr", {}, ...head.map((name) => h("th", { scope: "col" }, name)));
  const whole = h("table", {}, h("caption", {}, caption), h("thead", {}, names), h("tbody", {}, ...rows));
  return h("div", { class: "card scroll", tabindex: 0, role: "region", "aria-label": caption }, whole);
}

const nameOf = (agent) => agent || "all agents";

/** What is frozen now. */
function freezes(all) {
  return all
    .filter((freeze) => freeze.released_at === null)
    .map((freeze) => h("p", { class: "problem", dir: "auto" }, `Frozen: ${nameOf(freeze.agent)}, by ${freeze.frozen_by || "unknown"}, ${clock(freeze.frozen_at)}. ${freeze.reason}`));
}

function queues({ queues: all, workers: those }) {
  const rows = all.map((queue) => {
    const able = those.filter((worker) => worker.state === "up" && worker.agents.includes(queue.agent)).length;
    return h("tr", {}, h("th", { scope: "row" }, queue.agent), h("td", {}, count(queue.queued)), h("td", {}, count(queue.running)), h("td", {}, able || !queue.queued ? count(able) : "none: start one"));
  });
  return table("Runs by agent, of all keys", ["Agent", "Queued", "Running", "Workers for it"], rows.length ? rows : [empty(4, "Nothing is queued or running.")]);
}

function workers(all) {
  const rows = all.map((worker) => {
    const [word, tone] = STATES[worker.state === "up" && worker.running >= worker.capacity ? "full" : worker.state] ?? [worker.state, "idle"];
    const state = h("span", { class: "pill", "data-tone": tone }, h("span", { class: "dot", "aria-hidden": "true" }), word);
    return h("tr", {}, h("th", { scope: "row" }, worker.id), h("td", {}, state), h("td", {}, `${worker.running} of ${worker.capacity}`), h("td", { dir: "auto" }, worker.agents.join(", ")), h("td", {}, ago(worker.started_at)), h("td", {}, `${duration(worker.heartbeat_age)} ago`));
  });
  return table("Workers", ["Worker", "State", "Runs", "Agents", "Started", "Last heard of"], rows.length ? rows : [empty(6, "No worker is there. Start one: quiesce worker")]);
}

/** The caps of this key, if there are any. */
function caps(all) {
  const share = (cap, name, show) => (cap.allowed[name] === null ? "no cap" : `${show(cap.used[name] ?? 0)} of ${show(cap.allowed[name])}`);
  const dollars = (value) => money(value, "USD");
  const rows = all.map((cap) => h("tr", {}, h("th", { scope: "row" }, nameOf(cap.agent)), h("td", {}, cap.shared ? "all keys together" : "this key"), h("td", {}, share(cap, "runs", count)), h("td", {}, share(cap, "tokens", count)), h("td", {}, share(cap, "cost", dollars)), h("td", {}, duration(cap.resets_in))));
  return rows.length ? [table("Caps", ["Agent", "Counts", "Runs", "Tokens today", "Cost today", "New day in"], rows)] : [];
}

function empty(columns, text) {
  return h("tr", {}, h("td", { colspan: columns }, text));
}
