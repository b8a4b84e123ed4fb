// The conversation on the page. Each entry is drawn once and brought up to date in place, so that a reader's selection,
// focus and scroll stay where they are while the answer grows.

import { cancelTool } from "./api.js";
import { h, pretty, prettyArguments, say, show } from "./dom.js";
import { retell, textOf } from "./story.js";
import { count, duration, OUTCOME } from "./words.js";

const LONG = 4000;

export class Conversation {
  constructor(runId, onProblem) {
    this.runId = runId;
    this.onProblem = onProblem;
    this.drawn = new Map();
    this.element = h("section", { class: "conversation", "aria-label": "Conversation" });
  }

  /** Bring everything that changed in the story up to date. */
  update(story) {
    for (const entry of story.changed) {
      let view = this.drawn.get(entry);
      if (!view) {
        view = this.#begin(entry);
        this.drawn.set(entry, view);
        this.element.append(view.element);
      }
      view.update(entry);
    }
    story.changed.clear();
  }

  #begin(entry) {
    if (entry.kind === "user") return userEntry(entry);
    if (entry.kind === "notice") return notice(entry);
    return new Answer((tool) => this.#stopTool(tool));
  }

  async #stopTool(tool) {
    try {
      await cancelTool(this.runId, tool.id);
    } catch (error) {
      this.onProblem(error);
    }
  }
}

/** A finished conversation, from its messages alone. */
export function retold(runId, messages) {
  const whole = new Conversation(runId, () => {});
  whole.update(retell(messages));
  return whole;
}

/** The earlier messages of the session, collapsed; nothing without any. */
export function earlier(runId, messages) {
  if (!messages.length) return [];
  const told = retold(runId, messages);
  told.element.setAttribute("aria-label", "Earlier in this session");
  const number = messages.filter((message) => message.type !== "tool").length;
  return [h("details", { class: "earlier" }, h("summary", {}, `Earlier in this session (${number} messages)`), told.element)];
}

function userEntry(entry) {
  const text = h("div", { class: "words" });
  text.textContent = textOf(entry.content);
  return { element: h("article", { class: "entry user", "aria-label": "You" }, h("h2", { class: "who" }, "You"), text), update() {} };
}

function notice(entry) {
  return { element: h("p", { class: `notice ${entry.tone}` }, entry.text), update() {} };
}

class Answer {
  constructor(stopTool) {
    this.stopTool = stopTool;
    this.blocks = new Map();
    this.body = h("div", { class: "blocks" });
    this.note = h("p", { class: "notice cut", hidden: true });
    this.element = h("article", { class: "entry assistant", "aria-label": "Agent" }, h("h2", { class: "who" }, "Agent"), this.body, this.note);
  }

  update(entry) {
    for (const block of entry.blocks) {
      let view = this.blocks.get(block);
      if (!view) {
        view = block.kind === "tool" ? new ToolView(block, this.stopTool) : new Words(block.kind);
        this.blocks.set(block, view);
        this.body.append(view.element);
      }
      view.update(block);
    }
    this.element.classList.toggle("writing", !entry.done);
    show(this.note, Boolean(entry.note));
    if (entry.note) say(this.note, entry.note);
  }
}

class Words {
  constructor(kind) {
    this.text = document.createTextNode("");
    this.words = h("div", { class: "words" }, this.text);
    this.element = kind === "reasoning" ? h("details", { class: "thinking" }, h("summary", {}, "Thinking"), this.words) : this.words;
  }

  update(block) {
    const old = this.text.data;
    if (block.text !== old) {
      if (block.text.startsWith(old)) this.text.appendData(block.text.slice(old.length));
      else this.text.data = block.text;
    }
    this.words.classList.toggle("torn", Boolean(block.cut));
  }
}

const STATE_WORDS = { asked: "being asked for", running: "running", waiting: "waits for you", ...OUTCOME };

class ToolView {
  constructor(tool, stopTool) {
    this.name = h("span", { class: "tool-name" }, tool.name);
    this.state = h("span", { class: "tool-state" });
    this.time = h("span", { class: "tool-time" });
    this.stop = h("button", { type: "button", class: "quiet small", hidden: true, "aria-label": `Stop only the tool ${tool.name}`, on: { click: () => stopTool(tool) } }, "Stop this tool");
    this.bar = h("progress", { hidden: true, "aria-label": `Progress of ${tool.name}` });
    this.progress = h("p", { class: "tool-progress", hidden: true });
    this.args = h("pre", { tabindex: 0, "aria-label": `Arguments of ${tool.name}` });
    this.output = h("pre", { tabindex: 0, "aria-label": `Result of ${tool.name}` });
    this.whole = false;
    this.more = h("button", { type: "button", class: "quiet small more", hidden: true, on: { click: () => this.#showAll() } });
    this.child = h("div", { class: "child words", hidden: true });
    this.details = h("details", {}, h("summary", {}, "Arguments and result"), this.args, this.output, this.more);
    this.element = h(
      "div",
      { class: "tool", role: "group", "aria-label": `Tool ${tool.name}` },
      h("div", { class: "tool-head" }, h("span", { class: "tool-dot", "aria-hidden": "true" }), this.name, this.state, this.time, this.stop),
      this.bar,
      this.progress,
      this.child,
      this.details,
    );
  }

  update(tool) {
    const failed = tool.state === "completed" && tool.result?.is_error;
    const look = failed ? "failed" : tool.state;
    if (this.element.dataset.state !== look) this.element.dataset.state = look;
    say(this.state, failed ? "failed" : STATE_WORDS[tool.state] ?? String(tool.state));
    say(this.time, tool.from !== null && tool.to > tool.from ? duration(tool.to - tool.from) : "");
    show(this.stop, tool.state === "running");
    this.#progress(tool);
    say(this.args, shorten(tool.arguments === null ? tool.written : prettyArguments(tool.arguments)));
    show(this.args, this.args.textContent !== "");
    this.#output(tool.result ? textOf(tool.result.content) : "");
    show(this.child, Boolean(tool.child));
    if (tool.child) say(this.child, childWords(tool.child));
  }

  #output(text) {
    this.text = text;
    say(this.output, this.whole ? text : shorten(text));
    show(this.output, text !== "");
    show(this.more, !this.whole && text.length > LONG);
    say(this.more, `Show all ${count(text.length)} characters`);
  }

  #showAll() {
    this.whole = true;
    this.#output(this.text);
    this.output.focus(); // the button that had it is gone
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

function childWords(child) {
  const tools = child.tools.length ? `\n[used ${child.tools.join(", ")}]` : "";
  return `Sub-run ${child.run}: ${child.text}${tools}`;
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
