// The trace of a run as a tree: model calls, the tools that they asked for, and the runs that tools started. Equal calls in
// a row are one group. What is inside a node is made when it is opened, some rows at a time, so that a long run stays small.

import { h, onPress, say, show } from "./dom.js";
import { jsonTree } from "./json_tree.js";
import { textOf } from "./story.js";
import { cost, count, duration, OUTCOME, tokens } from "./words.js";

const PAGE = 50;
const GROUP = 3; // so many equal calls in a row are a group

// --- The nodes -------------------------------------------------------------------------------------------------------

/** The nodes of a story: one for each model call, with its tools. Tools of an unseen model call come first. */
export function nodesOf(story, path = "") {
  const tools = Map.groupBy([...story.tools.values()], (tool) => tool.call);
  const calls = story.calls.map((call, index) => modelNode(call, grouped(tools.get(index) ?? [], path), `${path}model ${index}`));
  return [...grouped(tools.get(-1) ?? [], path), ...calls];
}

function modelNode(call, children, key) {
  const usage = call.entry?.usage;
  const figures = usage ? [`${tokens(usage.input).value} in`, `${tokens(usage.output).value} out`, cost(call.entry.cost)?.value] : [];
  const state = { open: "running", failed: "failed", completed: "completed" }[call.ended] ?? (call.to === null ? "running" : "cancelled");
  const words = state === "cancelled" ? "cut" : state === "failed" ? `failed${call.entry?.error ? `: ${call.entry.error}` : ""}` : "";
  const name = `${call.model}, turn ${call.turn}${call.attempt > 1 ? `, attempt ${call.attempt}` : ""}`;
  return { key, kind: "model", name, state, words, figures, from: call.from, to: call.to, children: () => children, number: children.length };
}

function grouped(tools, path) {
  const runs = [];
  for (const tool of tools) {
    const last = runs.at(-1);
    if (last && last[0].name === tool.name && stateOf(last[0]) === stateOf(tool) && !tool.child) last.push(tool);
    else runs.push([tool]);
  }
  return runs.flatMap((run) => (run.length < GROUP ? run.map((tool) => toolNode(tool, path)) : [groupNode(run, path)]));
}

const stateOf = (tool) => (tool.state === "completed" && tool.result?.is_error ? "failed" : tool.state);

function groupNode(tools, path) {
  const from = tools.reduce((first, tool) => Math.min(first, tool.from ?? Infinity), Infinity);
  const to = tools.some((tool) => tool.to === null) ? null : Math.max(...tools.map((tool) => tool.to));
  const state = stateOf(tools[0]);
  return { key: `${path}group ${tools[0].id}`, kind: "group", name: `${tools[0].name} x${count(tools.length)}`, state, words: state === "completed" ? "" : wordsOf(state), figures: [], from: Number.isFinite(from) ? from : null, to, children: () => tools.map((tool) => toolNode(tool, path)), number: tools.length };
}

function toolNode(tool, path) {
  const state = stateOf(tool);
  const inside = tool.child?.story;
  const used = inside?.used;
  const figures = used?.output ? [`${count(used.input)} in`, `${count(used.output)} out`, used.spent?.value] : [];
  const key = `${path}${tool.id}`;
  const error = state === "failed" ? textOf(tool.result.content).slice(0, 200) : "";
  return { key, kind: inside ? "agent" : "tool", name: tool.name, state, words: error || (state === "completed" ? "" : wordsOf(state)), figures, from: tool.from, to: tool.to, tool, children: () => (inside ? nodesOf(inside, `${key} `) : []), number: inside ? inside.calls.length : 0 };
}

const wordsOf = (state) => ({ asked: "the model is writing this call", running: "running", waiting: "waits for you", failed: "failed" })[state] ?? OUTCOME[state] ?? String(state);

// --- The view --------------------------------------------------------------------------------------------------------

export class Trace {
  /** `stopTool(tool)` stops a tool that runs, and with it the agent that it started. */
  constructor(stopTool) {
    this.stopTool = stopTool;
    this.rows = new Rows(this);
    this.element = this.rows.element;
  }

  /** Bring what is open up to date. */
  update(story, now) {
    this.story = story;
    this.from = story.startedAt ?? now;
    this.to = Math.max(story.end?.at ?? now, this.from + 0.001);
    this.timeless = story.timeless;
    this.rows.update(nodesOf(story));
  }
}

/** A list of rows, by the key of their nodes: a row that is open or has the focus stays. */
class Rows {
  constructor(trace) {
    this.trace = trace;
    this.most = PAGE;
    this.rows = new Map();
    this.list = h("ul", { class: "trace-rows" });
    this.more = h("button", { type: "button", class: "quiet small", hidden: true, on: { click: () => this.#showMore() } });
    this.element = h("div", {}, this.list, this.more);
  }

  update(nodes) {
    this.nodes = nodes;
    const shown = nodes.slice(0, this.most);
    const wanted = new Set(shown.map((node) => node.key));
    for (const [key, row] of this.rows) {
      if (wanted.has(key)) continue;
      row.element.remove();
      this.rows.delete(key);
    }
    shown.forEach((node, index) => {
      const row = this.rows.get(node.key) ?? new Row(this.trace);
      this.rows.set(node.key, row);
      row.update(node);
      if (this.list.children[index] !== row.element) this.list.insertBefore(row.element, this.list.children[index] ?? null);
    });
    const left = nodes.length - shown.length;
    show(this.more, left > 0);
    say(this.more, `Show ${Math.min(PAGE, left)} of ${count(left)} more`);
  }

  #showMore() {
    const first = this.most;
    this.most += PAGE;
    this.update(this.nodes);
    this.list.children[first]?.querySelector("summary")?.focus();
  }
}

class Row {
  constructor(trace) {
    this.trace = trace;
    this.dot = h("span", { class: "tool-dot", "aria-hidden": "true" });
    this.name = h("span", { class: "trace-name" });
    this.words = h("span", { class: "trace-words" });
    this.figures = h("span", { class: "trace-figures" });
    this.time = h("span", { class: "trace-time" });
    this.bar = h("span", { class: "trace-bar" });
    this.stop = onPress(h("button", { type: "button", class: "quiet small", hidden: true }, "Stop"), () => this.#stop());
    this.body = h("div", { class: "trace-body" });
    const line = h("summary", {}, this.dot, this.name, this.words, this.figures, this.time, h("span", { class: "trace-track", "aria-hidden": "true" }, this.bar));
    this.details = h("details", { on: { toggle: () => this.update(this.node) } }, line, this.body);
    this.element = h("li", {}, this.details, this.stop);
  }

  update(node) {
    this.node = node;
    this.element.dataset.state = node.state;
    this.element.dataset.kind = node.kind;
    say(this.name, node.name);
    say(this.words, node.words);
    say(this.figures, node.figures.filter(Boolean).join(" · "));
    this.#times(node);
    show(this.stop, node.tool?.state === "running" && !this.stopping && this.trace.story.end === null);
    this.stop.setAttribute("aria-label", `Stop ${node.name}`);
    if (this.details.open) this.#inside(node);
  }

  #times({ from, to }) {
    const { trace } = this;
    const known = from !== null && !trace.timeless;
    say(this.time, known ? duration(Math.max(0, (to ?? trace.to) - from)) : "");
    show(this.bar, known);
    if (!known) return;
    const share = (at) => Math.min(100, Math.max(0, (at - trace.from) / (trace.to - trace.from) * 100));
    this.bar.style.insetInlineStart = `${share(from)}%`;
    this.bar.style.inlineSize = `max(2px, ${share(to ?? trace.to) - share(from)}%)`;
  }

  /** The arguments, the result and the children, when the row is open. */
  #inside(node) {
    if (node.number > 0) {
      if (!this.rows) {
        this.rows = new Rows(this.trace);
        this.body.append(this.rows.element);
      }
      this.rows.update(node.children());
    }
    const { tool } = node;
    if (!tool || (tool.arguments === this.given && tool.result === this.result)) return;
    [this.given, this.result] = [tool.arguments, tool.result];
    this.facts?.remove();
    const text = tool.result ? textOf(tool.result.content) : "";
    this.facts = h("div", { class: "trace-facts" }, tool.arguments && Object.keys(tool.arguments).length ? jsonTree(tool.arguments, `Arguments of ${tool.name}`) : h("p", { class: "hint" }, "Without arguments"), text ? h("pre", { tabindex: 0, role: "group", "aria-label": `Result of ${tool.name}`, dir: "auto" }, text.slice(0, 2000), text.length > 2000 ? "…" : "") : "");
    this.body.prepend(this.facts);
  }

  async #stop() {
    this.stopping = true;
    say(this.words, "stopping");
    show(this.stop, false);
    this.stopping = await this.trace.stopTool(this.node.tool);
  }
}
