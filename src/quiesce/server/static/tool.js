// A tool call in the conversation: its state, its progress, what it changed, its arguments and its result.

import { changesOf, diffNode, isDiff } from "./diff.js";
import { h, onPress, pretty, say, show } from "./dom.js";
import { jsonTree, parseTree } from "./json_tree.js";
import { pictures } from "./pictures.js";
import { textOf } from "./story.js";
import { answeredWords, count, duration, OUTCOME } from "./words.js";

const LONG = 4000;
const STATE_WORDS = { asked: "the model is writing this call", running: "running", waiting: "waits for you", answered: "was answered, see below", ...OUTCOME };

export class ToolView {
  constructor(tool, stopTool) {
    this.name = h("span", { class: "tool-name" }, tool.name);
    this.state = h("span", { class: "tool-state" });
    this.time = h("span", { class: "tool-time" });
    this.stop = onPress(h("button", { type: "button", class: "quiet small", hidden: true, "aria-label": `Stop only the tool ${tool.name}` }, "Stop this tool"), () => this.#stop(tool, stopTool));
    this.stopping = false;
    this.bar = h("progress", { hidden: true, "aria-label": `Progress of ${tool.name}` });
    this.progress = h("p", { class: "tool-progress", hidden: true });
    this.args = h("div", { class: "tool-part" });
    this.output = h("div", { class: "tool-part" });
    this.change = h("div", { class: "tool-part" });
    this.more = h("button", { type: "button", class: "quiet small more", hidden: true, on: { click: () => this.#showAll() } });
    this.record = h("p", { class: "tool-record", dir: "auto", hidden: true });
    this.child = h("div", { class: "child words", hidden: true });
    this.details = h("details", {}, h("summary", {}, "Arguments and result"), this.args, this.output, this.more);
    this.element = h(
      "div",
      { class: "tool", role: "group", "aria-label": `Tool ${tool.name}` },
      h("div", { class: "tool-head" }, h("span", { class: "tool-dot", "aria-hidden": "true" }), this.name, this.state, this.time, this.stop),
      this.record,
      this.bar,
      this.progress,
      this.child,
      this.change,
      this.details,
    );
  }

  update(tool) {
    const failed = tool.state === "completed" && tool.result?.is_error;
    const look = failed ? "failed" : tool.state;
    if (this.element.dataset.state !== look) this.element.dataset.state = look;
    say(this.state, failed ? "failed" : STATE_WORDS[tool.state] ?? String(tool.state));
    say(this.time, tool.from !== null && tool.to > tool.from ? duration(tool.to - tool.from) : "");
    const stopping = this.stopping && tool.state === "running";
    if (stopping) say(this.state, "stopping");
    show(this.stop, tool.state === "running" && !stopping);
    show(this.record, Boolean(tool.record));
    if (tool.record) say(this.record, answeredWords(tool.record));
    this.#progress(tool);
    this.#arguments(tool);
    this.#result(tool);
    show(this.details, this.args.childElementCount + this.output.childElementCount > 0);
    show(this.child, Boolean(tool.child));
    if (tool.child) say(this.child, childWords(tool.child));
  }

  /** Say at once that the tool is being stopped; take it back when the request fails. */
  async #stop(tool, stopTool) {
    this.stopping = true;
    this.update(tool);
    this.stopping = await stopTool(tool);
    this.update(tool);
  }

  /** The arguments: as text while the model writes them, then as a tree. */
  #arguments(tool) {
    const given = tool.arguments ?? tool.written;
    if (given === this.given) return;
    this.given = given;
    const isEmpty = given === "" || (typeof given === "object" && !Object.keys(given).length);
    const name = `Arguments of ${tool.name}`;
    this.args.replaceChildren(...(isEmpty ? [] : [label("Arguments"), typeof given === "string" ? textNode(shorten(given), name) : jsonTree(given, name)]));
    if (!this.result && tool.arguments) this.change.replaceChildren(...changesOf(tool.arguments, `Change by ${tool.name}`));
  }

  #result(tool) {
    if (!tool.result || tool.result === this.result) return;
    const text = textOf(tool.result.content);
    const isKnown = this.result && text === this.text; // what is open stays open
    this.result = tool.result;
    if (isKnown) return;
    const isChange = isDiff(text);
    if (isChange) this.change.replaceChildren(diffNode(text, `Change by ${tool.name}`));
    const parsed = isChange ? undefined : parseTree(text);
    this.text = text;
    if (parsed !== undefined) this.output.replaceChildren(label("Result"), jsonTree(parsed, `Result of ${tool.name}`));
    else if (!isChange && text) this.#showText(`Result of ${tool.name}`);
    this.element.querySelector(".pictures")?.remove();
    this.details.before(...pictures(tool.result.content));
  }

  #showText(name) {
    this.pre = textNode(shorten(this.text), name);
    this.output.replaceChildren(label("Result"), this.pre);
    show(this.more, this.text.length > LONG);
    say(this.more, `Show all ${count(this.text.length)} characters`);
  }

  #showAll() {
    say(this.pre, this.text);
    show(this.more, false);
    this.pre.focus(); // the button that had it is gone
  }

  #progress(tool) {
    const running = tool.state === "running";
    const share = shareOf(tool.progress);
    show(this.bar, running);
    if (running && share !== null) this.bar.value = share;
    else if (running) this.bar.removeAttribute("value");
    const words = tool.progress === null ? "" : progressWords(tool.progress);
    show(this.progress, words !== "" && running);
    say(this.progress, words);
  }
}

function label(text) {
  return h("p", { class: "tool-label" }, text);
}

function textNode(text, name) {
  return h("pre", { tabindex: 0, dir: "auto", role: "group", "aria-label": name }, text);
}

function childWords({ run, story }) {
  const said = story.entries.flatMap((entry) => entry.blocks ?? []).filter((block) => block.kind === "text").map((block) => block.text);
  const tools = [...story.tools.values()].map((tool) => tool.name);
  return `Sub-run ${run}: ${shorten(said.join("\n"))}${tools.length ? `\n[used ${[...new Set(tools)].join(", ")}]` : ""}`;
}

function shorten(text) {
  return text.length > LONG ? `${text.slice(0, LONG)}\n… ${text.length - LONG} more characters` : text;
}

/** A tool's progress from 0 to 1, from any of the common formats; null when it reports none. */
export function shareOf(progress) {
  if (typeof progress === "number") return progress >= 0 && progress <= 1 ? progress : null;
  if (progress === null || typeof progress !== "object") return null;
  const share = Number(progress.share ?? progress.fraction ?? (progress.percent ?? NaN) / 100);
  if (share >= 0 && share <= 1) return share;
  const done = Number(progress.done ?? progress.progress ?? progress.current);
  const of = Number(progress.of ?? progress.total);
  return of > 0 && done >= 0 ? Math.min(1, done / of) : null;
}

/** A tool's progress as text. */
export function progressWords(progress) {
  if (typeof progress !== "object" || progress === null) return typeof progress === "number" && progress <= 1 ? `${Math.round(progress * 100)} %` : String(progress);
  const message = progress.message ?? progress.text ?? progress.line;
  const done = progress.done ?? progress.progress ?? progress.current;
  const of = progress.of ?? progress.total;
  const numbers = done !== undefined && of !== undefined ? `${done} of ${of}` : "";
  if (message !== undefined) return numbers ? `${message} (${numbers})` : String(message);
  return numbers || shorten(pretty(progress));
}
