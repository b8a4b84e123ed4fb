// The usage by day, with its uncertainty.

import { ApiError, getUsage, insist } from "./api.js";
import { h, s, say } from "./dom.js";
import { figure } from "./receipt.js";
import { cost, count, money, tokens } from "./words.js";

const HEIGHT = 220;
const FOOT = 26;
const SIDE = 64;
const HEAD = 18;

export function openPage(place, shell) {
  document.title = "Usage · Quiesce";
  const left = new AbortController();
  const status = h("p", { class: "meta", role: "status" }, "Loading");
  const body = h("div");
  place.append(h("div", { class: "page" }, h("h1", {}, "Usage"), status, body));
  const resizing = new ResizeObserver(() => redraw());
  let redraw = () => {};
  insist(getUsage, { signal: left.signal, onRetry: () => shell.connection("Connection lost. Trying again…") })
    .then((report) => {
      shell.connection(null);
      say(status, report.total.calls ? `${count(report.total.calls)} model calls` : "Nothing has been used yet.");
      const days = byDay(report.days);
      const picture = h("div", { class: "picture" });
      body.append(totals(report.total), h("section", { class: "card", "aria-label": "Over time" }, h("h2", {}, chartTitle(days)), picture), table(report.days));
      redraw = () => picture.clientWidth && picture.replaceChildren(chart(days, Math.floor(picture.clientWidth)));
      resizing.observe(picture);
      redraw();
    })
    .catch((error) => {
      if (left.signal.aborted) return;
      say(status, error instanceof ApiError ? error.text : String(error));
    });
  return () => {
    left.abort();
    resizing.disconnect();
    shell.connection(null);
  };
}

function totals(total) {
  const spent = cost(total.cost);
  const cell = (name, known) => h("div", { class: "total" }, h("dt", {}, name), h("dd", {}, ...figure(known)));
  return h(
    "dl",
    { class: "totals" },
    cell("Cost", spent ?? { value: "no price known", sure: "unknown", interval: "" }),
    cell("Tokens in", tokens(total.input)),
    cell("Tokens out", tokens(total.output)),
  );
}

/** One figure for each day, the oldest first: money where prices are known, tokens otherwise. */
export function byDay(rows) {
  const priced = rows.some((row) => row.usage.cost !== null);
  const days = new Map();
  for (const row of rows) {
    const day = days.get(row.day) ?? { day: row.day, value: 0, low: 0, high: 0, unknown: false, currency: null };
    add(day, priced ? row.usage.cost : row.usage.output);
    if (priced && row.usage.cost) day.currency = row.usage.cost.currency;
    days.set(row.day, day);
  }
  return [...days.values()].sort((a, b) => a.day.localeCompare(b.day));
}

function add(day, known) {
  if (known === null) {
    day.unknown = true;
    return;
  }
  day.low += Number(known.low);
  day.value += Number(known.value ?? known.low);
  day.unknown ||= known.value === null;
  day.high = day.high === null || known.high === null ? null : day.high + Number(known.high);
}

const currencyOf = (days) => days.find((day) => day.currency)?.currency ?? null;
const chartTitle = (days) => (currencyOf(days) ? "Cost per day" : "Tokens out per day");

function amount(value, days) {
  const currency = currencyOf(days);
  return currency ? money(value, currency) : count(Math.round(value));
}

function chart(days, width) {
  const most = Math.max(...days.map((day) => Math.max(day.value, day.high ?? day.value * 1.15)), 1e-9);
  const room = width - SIDE - 8;
  const slot = Math.min(96, room / Math.max(1, days.length));
  const bottom = HEIGHT - FOOT;
  const y = (value) => bottom - value / most * (bottom - HEAD);
  const words = days.map((day) => `${day.day || "earlier"}: ${dayWords(day, days)}`).join("; ");
  return s(
    "svg",
    { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": `${chartTitle(days)}. ${words || "Nothing yet"}.` },
    ...[0, 0.5, 1].flatMap((share) => [
      s("line", { x1: SIDE, x2: width - 8, y1: y(most * share), y2: y(most * share), class: share ? "tl-grid" : "tl-base" }),
      s("text", { x: SIDE - 8, y: y(most * share) + 4, class: "tl-tick", "text-anchor": "end" }, days.length ? amount(most * share, days) : ""),
    ]),
    ...days.flatMap((day, index) => column(day, days, SIDE + index * slot, slot, y, bottom, index)),
  );
}

function column(day, days, left, slot, y, bottom, index) {
  const wide = Math.max(3, Math.min(44, slot * 0.62));
  const middle = left + slot / 2;
  const every = Math.ceil(64 / slot);
  const uncertain = day.high === null || day.high !== day.low;
  return [
    s("rect", { x: middle - wide / 2, y: Math.min(y(day.value), bottom - 1), width: wide, height: Math.max(1, bottom - y(day.value)), rx: 3, class: "chart-bar" }, s("title", {}, `${day.day || "earlier"}: ${dayWords(day, days)}`)),
    uncertain ? s("line", { x1: middle, x2: middle, y1: y(day.low), y2: day.high === null ? HEAD - 6 : y(day.high), class: day.high === null ? "whisker open" : "whisker" }) : null,
    index % every === 0 ? s("text", { x: middle, y: HEIGHT - 8, class: "tl-tick", "text-anchor": "middle" }, dayName(day.day)) : null,
  ];
}

function dayName(day) {
  if (!day) return "earlier";
  return new Date(`${day}T00:00:00Z`).toLocaleDateString("en", { day: "numeric", month: "short", timeZone: "UTC" });
}

function dayWords(day, days) {
  const value = amount(day.value, days);
  if (day.high === day.low && !day.unknown) return value;
  return `${day.unknown ? "at least" : "about"} ${value}, ${amount(day.low, days)} ${day.high === null ? "or more" : `to ${amount(day.high, days)}`}`;
}

function table(rows) {
  const head = ["Day (UTC)", "Model", "Calls", "Tokens in", "Tokens out", "Cost"];
  return h(
    "div",
    { class: "card scroll", tabindex: 0, role: "region", "aria-label": "Usage by day and model" },
    h(
      "table",
      {},
      h("caption", {}, "By day and model"),
      h("thead", {}, h("tr", {}, ...head.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, ...rows.map((row) => h("tr", {},
        h("th", { scope: "row" }, row.day || "earlier"),
        h("td", {}, row.model),
        h("td", {}, count(row.usage.calls)),
        h("td", {}, ...figure(tokens(row.usage.input))),
        h("td", {}, ...figure(tokens(row.usage.output))),
        h("td", {}, ...(row.usage.cost ? figure(cost(row.usage.cost)) : ["no price"]))))),
    ),
  );
}
