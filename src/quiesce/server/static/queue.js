// Prompts that wait for the end of a run, in this tab. The next one is sent when the run has finished; after a stop or a
// failure nothing starts by itself.

import { h, say, show } from "./dom.js";
import { textOf } from "./story.js";

const LONG = 160;

export class PromptQueue {
  /** `send(prompt)` starts a run with a prompt; resolves to whether it has. */
  constructor(send) {
    this.send = send;
    this.place = null;
    this.prompts = [];
    this.isSending = false;
    this.title = h("p", { class: "meta", role: "status" });
    this.list = h("ol", { class: "queued" });
    this.next = h("button", { type: "button", class: "quiet small", id: "send-next", on: { click: () => this.sendNext() } }, "Send the next one");
    this.element = h("section", { class: "prompt-queue", "aria-label": "Queued prompts", hidden: true }, h("div", { class: "row" }, this.title, this.next), this.list);
  }

  /** Keep the prompts for this session, so that they survive a reload and the next run has them. */
  open(session) {
    const place = `quiesce.queue.${session}`;
    if (place === this.place) return;
    this.place = place;
    this.prompts = recall(place);
    this.#draw();
  }

  /** Whether the run goes on, so that the next prompt waits for its end. */
  wait(isRunning) {
    show(this.next, !isRunning);
    this.isWaiting = isRunning;
    this.#say();
  }

  add(prompt) {
    this.prompts.push(prompt);
    this.#changed();
    return true;
  }

  /** Send the first prompt. One that is not taken stays. */
  async sendNext() {
    if (!this.prompts.length || this.isSending) return;
    this.isSending = true;
    const [first, ...rest] = this.prompts;
    this.prompts = rest;
    remember(this.place, rest); // before the page of the next run looks
    const taken = await this.send(first);
    this.isSending = false;
    if (!taken) this.prompts = [first, ...this.prompts];
    this.#changed();
  }

  #remove(prompt) {
    this.prompts = this.prompts.filter((each) => each !== prompt);
    this.#changed();
    document.getElementById("draft")?.focus();
  }

  #changed() {
    remember(this.place, this.prompts);
    this.#draw();
  }

  #draw() {
    show(this.element, this.prompts.length > 0);
    this.list.replaceChildren(...this.prompts.map((prompt) => this.#row(prompt)));
    this.#say();
  }

  #say() {
    const number = this.prompts.length === 1 ? "1 prompt is queued" : `${this.prompts.length} prompts are queued`;
    say(this.title, this.isWaiting ? `${number} for the end of this run, in this tab.` : `${number}.`);
  }

  #row(prompt) {
    const text = typeof prompt === "string" ? prompt : textOf(prompt);
    const shown = text.length > LONG ? `${text.slice(0, LONG - 1)}…` : text;
    const remove = h("button", { type: "button", class: "quiet small", "aria-label": `Remove the queued prompt ${shown}`, on: { click: () => this.#remove(prompt) } }, "Remove");
    return h("li", {}, h("span", { class: "queued-text", dir: "auto" }, shown), remove);
  }
}

// Storage may be disabled or full: then the prompts do not survive a reload, and everything else works.

function recall(place) {
  try {
    return JSON.parse(sessionStorage.getItem(place) ?? "[]");
  } catch {
    return [];
  }
}

function remember(place, prompts) {
  try {
    if (prompts.length) sessionStorage.setItem(place, JSON.stringify(prompts));
    else sessionStorage.removeItem(place);
  } catch {
    // Only a reload, or the page of the next run, would have needed it.
  }
}
