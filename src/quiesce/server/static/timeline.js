// The timeline of a run: model calls and tools as bars over time, the output, and the stop with what it cut.

import { s } from "./dom.js";
import { count, duration, OUTCOME } from "./words.js";

const ROW = 22;
const BAR = 14;
const GRAPH = 46;
const AXIS = 22;
const GAP = 10;
const HATCH = 12;
const SAID = 20; // tools in the text
const NAMES = 12; // rows of tools
const LETTER = 6.4; // how wide a letter of a label is, roughly
const CUT = new Set(["hung_up", "cancelled", "killed", "abandoned", "drained", "cancelled_at_provider"]);

/** The timeline of a story at `now` (seconds since the epoch), `width` pixels wide. */
export function timeline(story, now, width) {
  const from = story.startedAt ?? now;
  const to = Math.max(story.end?.at ?? now, from + 0.001);
  const span = (to - from) * (story.end ? 1.02 : 1.06);
  const names = width < 520 ? 78 : 120;
  const room = width - names - 12;
  const x = (at) => names + (Math.min(Math.max(at, from), to) - from) / span * room;
  const kinds = byName([...story.tools.values()].filter((tool) => tool.from !== null));
  const rows = 1 + kinds.length;
  const graphTop = AXIS + rows * ROW + GAP;
  const height = graphTop + GRAPH + 8 + (story.stop ? 18 : 0);
  const parts = [
    ...axis(from, span, names, room, graphTop + GRAPH),
    rowName("Model", 0),
    ...modelBars(story, x, to),
    ...kinds.flatMap(([name, tools], index) => [rowName(tools.length > 1 ? `${name} x${tools.length}` : name, index + 1), ...thin(tools).flatMap((tool) => toolBar(tool, index + 1, x, to))]),
    ...growth(story, x, to, graphTop, names),
    ...marks(story, x, graphTop),
    ...stopMark(story, x, to, graphTop + GRAPH, names + room),
  ];
  return s(
    "svg",
    { class: "timeline", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": describe(story, to) },
    s("defs", {}, s("pattern", { id: "cut-hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("rect", { width: 3, height: 6, class: "hatch" }))),
    ...parts,
  );
}

/** The tools in one row for each name, and the names beyond the first in one row together. */
function byName(tools) {
  const kinds = [...Map.groupBy(tools, (tool) => tool.name)];
  if (kinds.length <= NAMES) return kinds;
  return [...kinds.slice(0, NAMES - 1), ["other tools", kinds.slice(NAMES - 1).flatMap(([, rest]) => rest)]];
}

const top = (row) => AXIS + row * ROW + (ROW - BAR) / 2;

function rowName(name, row) {
  const short = name.length > 17 ? `${name.slice(0, 16)}…` : name;
  return s("text", { x: 0, y: top(row) + BAR - 3, class: "tl-name" }, short, s("title", {}, name));
}

function bar(from, to, row, look, title) {
  return s("rect", { x: from.toFixed(1), y: top(row), width: Math.max(2, to - from).toFixed(1), height: BAR, rx: 3, class: `tl-bar ${look}` }, s("title", {}, title));
}

/** The end of a bar that was cut: a hatched piece, an edge, and the outcome where it fits. */
function cutEnd(begin, end, row, word) {
  const at = Math.max(end, begin + HATCH);
  const wide = word.length * LETTER;
  const fits = at - begin - HATCH > wide + 60;
  return s(
    "g",
    { class: "tl-cut" },
    s("rect", { x: (at - HATCH).toFixed(1), y: top(row), width: HATCH, height: BAR, fill: "url(#cut-hatch)" }),
    s("rect", { x: (at - 2).toFixed(1), y: top(row) - 2, width: 2, height: BAR + 4, class: "tl-edge" }),
    fits ? s("text", { x: (at - HATCH - 5).toFixed(1), y: top(row) + BAR - 3, class: "tl-label", "text-anchor": "end" }, word) : null,
  );
}

function modelBars(story, x, to) {
  return story.calls.flatMap((call) => {
    const begin = x(call.from);
    const end = x(call.to ?? to);
    const cut = CUT.has(call.ended);
    const failed = call.ended === "failed";
    const took = duration((call.to ?? to) - call.from);
    const title = `Turn ${call.turn}: ${call.model}, ${took}${cut ? ", cut" : failed ? ", failed" : ""}`;
    const label = end - begin > 50 ? s("text", { x: (begin + 5).toFixed(1), y: top(0) + BAR - 3, class: "tl-label" }, `turn ${call.turn}`) : null;
    return [bar(begin, end, 0, failed ? "failed" : "model", title), label, cut ? cutEnd(begin, end, 0, "cut") : null];
  });
}

function toolBar(tool, row, x, to) {
  const begin = x(tool.from);
  const end = x(tool.to ?? to);
  const outcome = tool.result?.outcome;
  const cut = CUT.has(outcome);
  const failed = outcome === "completed" && tool.result.is_error;
  const word = failed ? "failed" : OUTCOME[outcome] ?? "running";
  return [
    bar(begin, end, row, failed ? "failed" : tool.to === null ? "running" : "tool", `${tool.name}: ${word}, ${duration((tool.to ?? to) - tool.from)}`),
    cut ? cutEnd(begin, end, row, outcome) : null,
  ];
}

function growth(story, x, to, y, names) {
  const points = story.tokens;
  const most = points.reduce((high, point) => Math.max(high, point.total), 1);
  const place = (point) => `${x(point.at).toFixed(1)} ${(y + GRAPH - point.total / most * (GRAPH - 10)).toFixed(1)}`;
  const base = y + GRAPH;
  const name = [
    s("text", { x: 0, y: base - GRAPH / 2, class: "tl-name" }, "Tokens out"),
    s("text", { x: 0, y: base - GRAPH / 2 + 13, class: "tl-sub" }, points.length ? count(points.at(-1).total) : "none"),
    s("line", { x1: names, x2: x(to).toFixed(1), y1: base, y2: base, class: "tl-base" }),
  ];
  if (points.length < 2) return name;
  const last = { at: to, total: points.at(-1).total };
  const steps = thin(points).concat(last).map((point, index) => `${index ? "L" : "M"}${place(point)}`).join(" ");
  return [...name, s("path", { d: `${steps} L${x(to).toFixed(1)} ${base} L${x(points[0].at).toFixed(1)} ${base} Z`, class: "tl-area" }), s("path", { d: steps, class: "tl-line" })];
}

/** At most some hundred points: more would not be visible. */
function thin(points) {
  const step = Math.ceil(points.length / 400);
  return step === 1 ? points : points.filter((point, index) => index % step === 0 || index === points.length - 1);
}

function marks(story, x, bottom) {
  return story.marks.flatMap((mark) => [
    s("line", { x1: x(mark.at), x2: x(mark.at), y1: AXIS - 4, y2: bottom, class: "tl-mark" }),
    s("text", { x: x(mark.at) + 4, y: bottom + 1, class: "tl-sub" }, mark.text),
  ]);
}

function stopMark(story, x, to, bottom, right) {
  if (!story.stop) return [];
  const at = x(story.stop.at);
  const end = x(to);
  const settled = duration(story.end?.receipt?.latency ?? to - story.stop.at);
  const words = story.end ? `stop, at rest ${settled} later` : `stop, ${settled} ago`;
  const left = at + words.length * LETTER > right;
  return [
    s("rect", { x: at.toFixed(1), y: AXIS - 4, width: Math.max(1, end - at).toFixed(1), height: bottom - AXIS + 4, class: "tl-settling" }),
    s("line", { x1: at.toFixed(1), x2: at.toFixed(1), y1: AXIS - 6, y2: bottom + 6, class: "tl-stop" }),
    s("text", { x: (left ? at + 2 : at).toFixed(1), y: bottom + 19, class: "tl-stop-name", "text-anchor": left ? "end" : "start" }, words),
  ];
}

function axis(from, span, names, room, bottom) {
  const step = niceStep(span / Math.max(2, room / 90));
  const parts = [];
  for (let at = 0; at <= span; at += step) {
    const place = names + at / span * room;
    if (place > names + room - 12) break;
    parts.push(s("line", { x1: place.toFixed(1), x2: place.toFixed(1), y1: AXIS - 4, y2: bottom, class: "tl-grid" }));
    parts.push(s("text", { x: place.toFixed(1), y: AXIS - 9, class: "tl-tick", "text-anchor": at === 0 ? "start" : "middle" }, at === 0 ? "0" : tickWords(at)));
  }
  return parts;
}

function niceStep(rough) {
  const scale = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * scale).find((step) => step >= rough) ?? rough;
}

function tickWords(seconds) {
  if (seconds < 1) return `${Number((seconds * 1000).toPrecision(3))} ms`;
  if (seconds < 120) return `${Number(seconds.toPrecision(3))} s`;
  return `${Number((seconds / 60).toPrecision(3))} min`;
}

/** The timeline as text, for screen readers. */
export function describe(story, to) {
  const from = story.startedAt ?? to;
  const tools = [...story.tools.values()].filter((tool) => tool.from !== null);
  const sentences = [`Timeline of ${duration(to - from)}: ${story.calls.length} model call${story.calls.length === 1 ? "" : "s"}`];
  if (tools.length) {
    const rest = tools.length - SAID;
    sentences.push(tools.slice(0, SAID).map((tool) => `tool ${tool.name} from ${duration(tool.from - from)} for ${duration((tool.to ?? to) - tool.from)}, ${OUTCOME[tool.result?.outcome] ?? "running"}`).join("; ") + (rest > 0 ? `; and ${rest} more` : ""));
  }
  if (story.stop) {
    const cut = [...story.calls.filter((call) => CUT.has(call.ended)).map(() => "the answer"), ...tools.filter((tool) => CUT.has(tool.result?.outcome)).map((tool) => tool.name)];
    sentences.push(`Stop asked for at ${duration(story.stop.at - from)}${cut.length ? `, which cut ${cut.join(", ")}` : ""}`);
  }
  return `${sentences.join(". ")}.`;
}
