// The workers of a fleet, and the runs of this key that wait for them.

import { getFleet } from "./api.js";
import { h, say } from "./dom.js";
import { ago, count, duration } from "./words.js";

const EVERY = 5000;
const STATES = { ready: ["takes runs", "good"], full: ["full", "live"], draining: ["shutting down", "warn"], lost: ["lost; its runs are taken over", "bad"] };

export function openPage(place) {
  document.title = "Fleet · Quiesce";
  const status = h("p", { class: "meta", role: "status" }, "Loading");
  const body = h("div");
  place.append(h("div", { class: "page" }, h("h1", {}, "Fleet"), status, body));
  let isLeft = false;
  const load = async () => {
    try {
      const fleet = await getFleet();
      if (isLeft) return;
      const able = fleet.workers.filter((worker) => ["ready", "full"].includes(worker.state)).length;
      say(status, `${able} of ${fleet.workers.length} ${fleet.workers.length === 1 ? "worker" : "workers"} at work`);
      body.replaceChildren(queues(fleet.queues), workers(fleet.workers));
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

function queues(all) {
  const rows = all.map((queue) => {
    const waits = queue.oldest === null ? "" : duration(Math.max(0, Date.now() / 1000 - queue.oldest));
    const able = queue.workers || !queue.queued ? count(queue.workers) : "none: start one";
    return h("tr", {}, h("th", { scope: "row" }, queue.agent), h("td", {}, count(queue.queued)), h("td", {}, waits), h("td", {}, count(queue.running)), h("td", {}, able));
  });
  return table("Your runs by agent", ["Agent", "Queued", "Oldest waits", "Running", "Workers for it"], rows);
}

function workers(all) {
  const rows = all.map((worker) => {
    const [word, tone] = STATES[worker.state] ?? [worker.state, "idle"];
    const state = h("span", { class: "pill", "data-tone": tone }, h("span", { class: "dot", "aria-hidden": "true" }), word);
    return h("tr", {}, h("th", { scope: "row" }, worker.id), h("td", {}, state), h("td", { dir: "auto" }, worker.agents.join(", ")), h("td", {}, ago(worker.started_at)), h("td", {}, `${duration(worker.age)} ago`));
  });
  return table("Workers", ["Worker", "State", "Agents", "Started", "Last heard of"], rows.length ? rows : [h("tr", {}, h("td", { colspan: 5 }, "No worker is there. Start one: quiesce worker"))]);
}
