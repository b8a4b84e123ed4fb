// The conversation on the page. Each entry is drawn once and brought up to date in place, so that a reader's selection,
// focus and scroll stay where they are while the answer grows.

import { client } from "./api.js";
import { copyButton, h, say, show } from "./dom.js";
import { Markdown } from "./markdown.js";
import { isPicture, pictures } from "./pictures.js";
import { retell, textOf, wordsOf } from "./story.js";
import { ToolView } from "./tool.js";

export class Conversation {
  constructor(runId, onProblem) {
    this.runId = runId;
    this.onProblem = onProblem;
    this.drawn = new Map();
    this.element = h("div", { class: "conversation", role: "region", "aria-label": "Conversation" });
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
    return new Answer((tool) => this.stopTool(tool));
  }

  /** Stop one tool; resolves to whether the request was taken. */
  async stopTool(tool) {
    try {
      await client.cancelTool(this.runId, tool.id, { reason: "stopped in the console" });
      return true;
    } catch (error) {
      this.onProblem(error);
      return false;
    }
  }
}

/** A finished conversation, from its messages and the records of what was answered. */
export function retold(runId, messages, records) {
  const whole = new Conversation(runId, () => {});
  whole.update(retell(messages, records));
  return whole;
}

function userEntry(entry) {
  const text = h("div", { class: "words", dir: "auto" });
  text.textContent = wordsOf(entry.content);
  const files = entry.content.filter((part) => part.type !== "text" && !isPicture(part)).map((part) => h("p", { class: "note" }, textOf([part])));
  return { element: h("article", { class: "entry user", "aria-label": "You" }, h("h2", { class: "who" }, "You"), text, files, ...pictures(entry.content)), update() {} };
}

function notice(entry) {
  return { element: h("p", { class: `notice ${entry.tone}` }, entry.text), update() {} };
}

// An answer with more tools than this folds those that have completed.
const FOLD = 10;
const PAGE = 50;

class Answer {
  constructor(stopTool) {
    this.stopTool = stopTool;
    this.blocks = new Map();
    this.folds = new Map();
    this.body = h("div", { class: "blocks" });
    this.note = h("p", { class: "notice cut", hidden: true });
    this.text = "";
    this.copy = copyButton("Copy the answer", () => this.text);
    this.element = h("article", { class: "entry assistant", "aria-label": "Agent" }, h("h2", { class: "who" }, "Agent"), this.body, this.note, this.copy);
  }

  update(entry) {
    const folded = this.#fold(entry);
    for (const [index, block] of entry.blocks.entries()) {
      let view = this.blocks.get(block);
      const fold = folded.get(block);
      if (fold) {
        if (!fold.element.parentNode) this.body.append(fold.element);
        view?.element.remove();
        this.blocks.delete(block);
        continue;
      }
      if (!view) {
        view = block.kind === "tool" ? new ToolView(block, this.stopTool) : new Words(block.kind);
        this.blocks.set(block, view);
        const after = entry.blocks.slice(index + 1).map((each) => this.blocks.get(each)?.element);
        this.body.insertBefore(view.element, after.find((each) => each?.parentNode === this.body) ?? null);
      }
      view.update(block, { done: entry.done, isLast: block === entry.blocks.at(-1) });
    }
    this.text = entry.blocks.filter((block) => block.kind === "text").map((block) => block.text.trim()).join("\n\n");
    show(this.copy, entry.done && this.text !== "");
    this.element.classList.toggle("writing", !entry.done);
    show(this.note, Boolean(entry.note));
    if (entry.note) say(this.note, entry.note);
  }

  /** Of many tools, those that have completed are behind one line for each name; what a person has opened stays. */
  #fold(entry) {
    const tools = entry.blocks.filter((block) => block.kind === "tool");
    const folded = new Map();
    if (tools.length <= FOLD) return folded;
    const done = tools.filter((tool) => tool.state === "completed" && !tool.result?.is_error && !this.blocks.get(tool)?.details.open);
    for (const [name, all] of Map.groupBy(done, (tool) => tool.name)) {
      if (all.length < 3) continue;
      if (!this.folds.has(name)) this.folds.set(name, new Fold(name, this.stopTool));
      this.folds.get(name).update(all);
      for (const tool of all) folded.set(tool, this.folds.get(name));
    }
    return folded;
  }
}

/** Completed calls of one tool. They are drawn when it is opened, some at a time. */
class Fold {
  constructor(name, stopTool) {
    this.name = name;
    this.stopTool = stopTool;
    this.tools = [];
    this.drawn = 0;
    this.title = h("summary", {});
    this.list = h("div", { class: "blocks" });
    this.more = h("button", { type: "button", class: "quiet small", hidden: true, on: { click: () => this.#draw() } });
    this.element = h("details", { class: "tool fold", "data-state": "completed", on: { toggle: () => this.element.open && !this.drawn && this.#draw() } }, this.title, this.list, this.more);
  }

  update(tools) {
    if (tools.length === this.tools.length) return;
    this.tools = tools;
    this.title.replaceChildren(h("span", { class: "tool-dot", "aria-hidden": "true" }), " ", h("span", { class: "tool-name" }, `${this.name} x${tools.length}`), " completed");
    this.#rest();
  }

  #draw() {
    for (const tool of this.tools.slice(this.drawn, this.drawn + PAGE)) {
      const view = new ToolView(tool, this.stopTool);
      view.update(tool);
      this.list.append(view.element);
      this.drawn += 1;
    }
    this.#rest();
  }

  #rest() {
    const left = this.tools.length - this.drawn;
    show(this.more, this.drawn > 0 && left > 0);
    say(this.more, `Show ${Math.min(PAGE, left)} of ${left} more`);
  }
}

/** Text of the model. Thinking is open while it is written, and folded when something else follows. */
class Words {
  constructor(kind) {
    this.markdown = new Markdown();
    this.words = this.markdown.element;
    if (kind !== "reasoning") {
      this.element = this.words;
      return;
    }
    this.title = h("summary", { on: { click: () => (this.touched = true) } }, "Thinking");
    this.element = h("details", { class: "thinking" }, this.title, this.words);
  }

  update(block, { done, isLast }) {
    this.markdown.update(block.text, done || !isLast);
    this.words.classList.toggle("torn", Boolean(block.cut));
    if (!this.title) return;
    const live = isLast && !done;
    say(this.title, live ? "Thinking…" : "Thought");
    if (!this.touched && this.element.open !== live) this.element.open = live;
  }
}
