// The conversation on the page. Each entry is drawn once and brought up to date in place, so that a reader's selection,
// focus and scroll stay where they are while the answer grows.

import { cancelTool } from "./api.js";
import { copyButton, h, say, show } from "./dom.js";
import { Markdown } from "./markdown.js";
import { pictures } from "./pictures.js";
import { retell, textOf } from "./story.js";
import { ToolView } from "./tool.js";

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
      return true;
    } catch (error) {
      this.onProblem(error);
      return false;
    }
  }
}

/** A finished conversation, from its messages alone. */
export function retold(runId, messages) {
  const whole = new Conversation(runId, () => {});
  whole.update(retell(messages));
  return whole;
}

function userEntry(entry) {
  const text = h("div", { class: "words", dir: "auto" });
  text.textContent = textOf(entry.content);
  return { element: h("article", { class: "entry user", "aria-label": "You" }, h("h2", { class: "who" }, "You"), text, ...pictures(entry.content)), update() {} };
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
    this.text = "";
    this.copy = copyButton("Copy the answer", () => this.text);
    this.element = h("article", { class: "entry assistant", "aria-label": "Agent" }, h("h2", { class: "who" }, "Agent"), this.body, this.note, this.copy);
  }

  update(entry) {
    for (const block of entry.blocks) {
      let view = this.blocks.get(block);
      if (!view) {
        view = block.kind === "tool" ? new ToolView(block, this.stopTool) : new Words(block.kind);
        this.blocks.set(block, view);
        this.body.append(view.element);
      }
      view.update(block, { done: entry.done, isLast: block === entry.blocks.at(-1) });
    }
    this.text = entry.blocks.filter((block) => block.kind === "text").map((block) => block.text.trim()).join("\n\n");
    show(this.copy, entry.done && this.text !== "");
    this.element.classList.toggle("writing", !entry.done);
    show(this.note, Boolean(entry.note));
    if (entry.note) say(this.note, entry.note);
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
