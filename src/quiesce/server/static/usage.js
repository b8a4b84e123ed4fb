// The usage by day, model, agent and session, and for an operator by key, with its uncertainty.

import { client, insist, ServerProblem } from "./api.js";
import { h, s, say, show } from "./dom.js";
import { setTitle } from "./notifications.js";
import { figure } from "./receipt.js";
import { ago, cost, count, money, tokens } from "./words.js";

const HEIGHT = 220;
const FOOT = 26;
const SIDE = 64;
const HEAD = 18;

const ALL_KEYS = "all";
const RANGES = { all: "All days", "1d": "Today", "7d": "Last 7 days", "30d": "Last 30 days" };

export function openPage(place, shell) {
  setTitle("Usage · Quiesce");
  const page = new UsagePage(shell);
  place.append(page.element);
  page.load();
  return () => page.leave();
}

/** The usage of some days, of all agents or of one; of this key, and for an operator of all keys or of another one. */
class UsagePage {
  constructor(shell) {
    this.shell = shell;
    this.left = new AbortController();
    this.redraw = () => {};
    this.resizing = new ResizeObserver(() => this.redraw());
    this.status = h("p", { class: "meta", role: "status" }, "Loading");
    this.range = h("select", { id: "usage-range", "aria-label": "Which days", on: { change: () => this.load() } }, ...Object.entries(RANGES).map(([value, label]) => h("option", { value }, label)));
    this.agent = h("select", { id: "usage-agent", "aria-label": "Which agent", hidden: true, on: { change: () => this.load() } }, h("option", { value: "" }, "All agents"));
    this.key = h("select", { id: "usage-key", "aria-label": "Which key", hidden: true, on: { change: () => this.#keyChosen() } }, h("option", { value: "" }, "Your key"));
    this.body = h("div");
    this.element = h("div", { class: "page" }, h("h1", {}, "Usage"), h("div", { class: "list-head" }, this.status, h("div", { class: "row" }, this.range, this.agent, this.key)), this.body);
  }

  async load() {
    const asked = (this.asked = {});
    const number = Number.parseInt(this.range.value, 10);
    const days = number ? { since: new Date(Date.now() - (number - 1) * 86_400_000).toISOString().slice(0, 10) } : {};
    const query = { ...days, ...(this.agent.value ? { agent: this.agent.value } : {}) };
    try {
      const onRetry = () => this.shell.connection("Connection lost. Trying again…");
      const report = await insist(() => this.#ask(query), { signal: this.left.signal, onRetry });
      if (this.asked !== asked || this.left.signal.aborted) return;
      this.shell.connection(null);
      this.#show(report);
    } catch (error) {
      if (!this.left.signal.aborted) say(this.status, error instanceof ServerProblem ? error.text : String(error));
    }
  }

  #ask(query) {
    const key = this.key.value;
    if (!key) return client.showUsage(query);
    return client.showUsageByKey(key === ALL_KEYS ? query : { ...query, key: key.slice(1) });
  }

  /** Another key may have other agents. */
  #keyChosen() {
    this.agent.value = "";
    this.load();
  }

  #show(report) {
    const isAll = this.range.value === "all" && !this.agent.value;
    say(this.status, report.total.calls ? `${count(report.total.calls)} model ${report.total.calls === 1 ? "call" : "calls"}` : isAll ? "Nothing has been used yet." : "Nothing was used.");
    if (isAll) this.#agents(report.days);
    if (isAll && !this.key.value) this.#keys(report);
    const days = byDay(report.days);
    const picture = h("div", { class: "picture" });
    const parts = [totals(report.total), h("section", { class: "card", "aria-label": "Over time" }, h("h2", {}, chartTitle(days)), picture)];
    if (this.key.value === ALL_KEYS) parts.push(keyTable(report.keys));
    parts.push(table(report.days));
    if (report.sessions?.length) parts.push(sessionTable(report.sessions, (session) => this.shell.feed.nameOf(session)));
    this.body.replaceChildren(...parts);
    this.redraw = () => picture.clientWidth && picture.replaceChildren(chart(days, Math.floor(picture.clientWidth)));
    this.resizing.disconnect();
    this.resizing.observe(picture);
    this.redraw();
  }

  #agents(rows) {
    const names = [...new Set(rows.map((row) => row.agent).filter(Boolean))].sort();
    this.agent.replaceChildren(h("option", { value: "" }, "All agents"), ...names.map((name) => h("option", { value: name }, name)));
    show(this.agent, names.length > 1);
  }

  /** For an operator: the keys to choose from, unless there is only this one. */
  #keys({ keys, total }) {
    const names = keys.map((name) => h("option", { value: `:${name}` }, name));
    this.key.replaceChildren(h("option", { value: "" }, "Your key"), h("option", { value: ALL_KEYS }, "All keys"), ...names);
    show(this.key, keys.length > (total.calls ? 1 : 0));
  }

  leave() {
    this.left.abort();
    this.resizing.disconnect();
    this.shell.connection(null);
  }
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

function figures(usage) {
  const spent = usage.cost ? figure(cost(usage.cost)) : ["no price"];
  return [h("td", {}, ...spent), h("td", {}, count(usage.calls)), h("td", {}, ...figure(tokens(usage.input))), h("td", {}, ...figure(tokens(usage.output)))];
}

function tableOf(caption, head, rows) {
  const names = h("tr", {}, ...[...head, "Cost", "Calls", "Tokens in", "Tokens out"].map((name) => h("th", { scope: "col" }, name)));
  const whole = h("table", {}, h("caption", {}, caption), h("thead", {}, names), h("tbody", {}, ...rows));
  return h("div", { class: "card scroll", tabindex: 0, role: "region", "aria-label": `Usage ${caption.toLowerCase()}` }, whole);
}

function table(rows) {
  const made = rows.map((row) => h("tr", {}, h("th", { scope: "row" }, row.day || "earlier"), h("td", {}, row.model), h("td", {}, row.agent || "unknown"), ...figures(row.usage)));
  return tableOf("By day, model and agent", ["Day (UTC)", "Model", "Agent"], made);
}

function keyTable(keys) {
  const made = keys.map((each) => h("tr", {}, h("th", { scope: "row", dir: "auto" }, each.key), h("td", {}, each.last_day || "earlier"), ...figures(each.usage)));
  return tableOf("By key", ["Key", "Last day (UTC)"], made);
}

function sessionTable(sessions, nameOf) {
  const made = sessions.map((each) => h("tr", {}, h("th", { scope: "row", dir: "auto", class: "session-name", title: each.session }, nameOf(each.session)), h("td", {}, each.agent), h("td", {}, ago(each.last_used)), h("td", {}, count(each.runs)), ...figures(each.usage)));
  return tableOf("By session", ["Session", "Agent", "Last used", "Runs"], made);
}
