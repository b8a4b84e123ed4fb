// The composer: the draft and its buttons. During a run, Stop replaces Send; Escape presses Stop and keeps the draft.

import { Attachments } from "./attachments.js";
import { h, onPress, say, show } from "./dom.js";

// A press that was meant for Stop must not send the draft when the run ends at that moment.
const SETTLE = 600;
const BUSY = ["running", "patient", "stopping", "forcing"];

export class Composer {
  /**
   * `place` names the draft, which survives a reload. `actions` has `send(text)`, and for a run `steer(text)`,
   * `queue(prompt)`,
   * `stop()`, `stopLater()` and `pause()`; `send` and `steer` resolve to whether the text was accepted; only then is it cleared.
   */
  constructor(place, label, actions) {
    this.place = `quiesce.draft.${place}`;
    this.actions = actions;
    this.mode = "idle";
    this.sending = false;
    this.changedAt = -Infinity;
    this.text = h("textarea", { id: "draft", rows: 1, "aria-describedby": "composer-hint", on: { input: () => this.#edited(), keydown: (event) => this.#key(event) } });
    this.text.value = recall(this.place);
    this.send = h("button", { type: "submit", class: "primary", id: "send" }, "Send");
    this.stop = onPress(h("button", { type: "button", class: "stop", id: "stop", hidden: true, on: { keydown: heldDown } }, "Stop"), () => actions.stop());
    this.steer = h("button", { type: "button", id: "steer", hidden: true, title: "Cut what the run is doing now; it goes on with your prompt (Enter)", on: { click: () => this.#submit() } }, "Steer");
    this.queue = h("button", { type: "button", id: "queue", hidden: true, title: "Send it when this run has finished (Ctrl+Enter)", on: { click: () => this.#submit(true) } }, "Queue");
    this.pause = h("button", { type: "button", class: "quiet", id: "pause", hidden: true, on: { click: () => actions.pause() } }, "Pause");
    this.canQueue = false;
    this.later = onPress(h("button", { type: "button", class: "quiet", id: "stop-later", hidden: true }, "Stop after this turn"), () => actions.stopLater());
    this.options = actions.stopLater ? this.#stopOptions() : null;
    this.hint = h("p", { id: "composer-hint", class: "hint" });
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.attached = new Attachments((text) => this.complain(text));
    this.label = h("label", { for: "draft" }, label);
    this.extra = h("div", { class: "composer-extra" });
    this.element = h(
      "form",
      {
        class: "composer",
        "aria-label": "Composer",
        on: {
          submit: (event) => this.#submitted(event),
          paste: (event) => this.attached.take(event, event.clipboardData),
          dragover: (event) => event.preventDefault(),
          drop: (event) => this.attached.take(event, event.dataTransfer),
        },
      },
      this.problem,
      this.label,
      this.extra,
      this.attached.list,
      this.attached.input,
      h("div", { class: "composer-foot" }, this.hint, this.attached.button, this.pause, this.later, this.options),
      h("div", { class: "composer-line" }, this.text, h("div", { class: "composer-buttons" }, this.queue, this.steer, this.send, this.stop)),
    );
    this.setMode("idle");
    new ResizeObserver(() => requestAnimationFrame(() => this.#grow())).observe(this.text); // its lines depend on its width
  }

  get draft() {
    return this.text.value;
  }

  /** loading | idle | starting | running | patient | stopping | forcing */
  setMode(mode) {
    if (mode !== this.mode) this.changedAt = performance.now();
    const hadFocus = [this.stop, this.send, this.steer].includes(document.activeElement);
    this.mode = mode;
    this.element.dataset.mode = mode;
    const busy = BUSY.includes(mode);
    show(this.stop, busy);
    show(this.send, !busy);
    this.send.disabled = mode === "starting" || mode === "loading";
    this.stop.setAttribute("aria-disabled", String(mode === "forcing"));
    show(this.attached.button, !busy);
    show(this.pause, mode === "running" && Boolean(this.actions.pause));
    show(this.later, mode === "running" && Boolean(this.actions.stopLater));
    if (this.options) show(this.options, busy && mode !== "forcing");
    say(this.stop, { patient: "Stop now", stopping: "Force stop", forcing: "Forcing…" }[mode] ?? "Stop");
    say(this.hint, HINTS[mode]);
    this.#offer();
    if (hadFocus && document.activeElement === document.body) (busy ? this.stop : this.text).focus();
    if (hadFocus && document.activeElement?.hidden) (busy ? this.stop : this.text).focus();
  }

  /** Whether the run waits, or will wait, before its next step. */
  setPaused(paused) {
    say(this.pause, paused ? "Go on" : "Pause");
    this.pause.title = paused ? "Let the run go on with its next step" : "Wait before the next step; what runs goes on to its end";
  }

  setLabel(label) {
    say(this.label, label);
  }

  /** Every way to stop, and why: the reason is on the receipt, and the model is told. */
  #stopOptions() {
    const mode = h("select", { id: "stop-mode", "aria-label": "How to stop" }, ...Object.entries(WAYS).map(([value, label]) => h("option", { value }, label)));
    const reason = h("input", { type: "text", id: "stop-reason", "aria-label": "Reason for the stop", placeholder: "Reason", maxlength: 1000, autocomplete: "off" });
    const press = () => {
      this.actions.stop(mode.value, reason.value.trim());
      made.open = false;
      this.stop.focus();
    };
    const onKey = (event) => {
      if (event.key !== "Enter" || event.isComposing) return;
      event.preventDefault(); // it would send the draft
      press();
    };
    reason.addEventListener("keydown", onKey);
    const made = h("details", { class: "stop-options", id: "stop-options", hidden: true }, h("summary", {}, "More ways to stop"), h("div", { class: "row" }, mode, reason, onPress(h("button", { type: "button", class: "stop", id: "stop-with" }, "Stop this way"), press)));
    return made;
  }

  /** Show an error; with no text, clear it. */
  complain(text) {
    show(this.problem, Boolean(text));
    say(this.problem, text ?? "");
  }

  focus(placeholder) {
    if (placeholder) this.text.placeholder = placeholder;
    this.text.focus();
  }

  #edited() {
    remember(this.place, this.draft);
    this.#offer();
    this.#grow();
  }

  /** Show what can be done with the draft now. */
  #offer() {
    const steerable = this.mode === "running" && Boolean(this.actions.steer) && this.draft.trim() !== "";
    show(this.steer, steerable);
    show(this.queue, BUSY.includes(this.mode) && this.canQueue && this.draft.trim() !== "");
  }

  /** Give the draft the height of its text. Meanwhile the composer keeps its own, so that the page does not scroll. */
  #grow() {
    this.element.style.minHeight = `${this.element.offsetHeight}px`;
    this.text.style.height = "auto";
    this.text.style.height = `${Math.min(240, this.text.scrollHeight + 2)}px`;
    this.element.style.minHeight = "";
  }

  #key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.#submit(event.ctrlKey || event.metaKey);
  }

  #submitted(event) {
    event.preventDefault();
    if (performance.now() - this.changedAt < SETTLE && event.submitter === this.send) return;
    this.#submit();
  }

  /** Send the draft: as a prompt, to steer the run, or with `isQueued` for the end of the run. */
  async #submit(isQueued = false) {
    const text = this.draft;
    const queues = isQueued && this.canQueue && BUSY.includes(this.mode);
    const action = queues ? this.actions.queue : this.mode === "idle" ? this.actions.send : this.mode === "running" ? this.actions.steer : null;
    if (!text.trim() || !action || this.sending) return;
    this.complain("");
    this.sending = true; // until there is an answer: a second Enter is not a second prompt
    try {
      const isPrompt = queues || this.mode === "idle"; // a steer is text; what is attached waits for the next prompt
      if ((await action(isPrompt ? await this.attached.with(text) : text)) && this.draft === text) {
        this.text.value = "";
        if (isPrompt) this.attached.clear();
        this.#edited();
      }
    } finally {
      this.sending = false;
    }
  }
}

/** Ignore the repeated presses of a key that is held down: they are not a second decision. */
function heldDown(event) {
  if (event.repeat) event.preventDefault();
}

// Storage may be disabled or full: then a draft does not survive a reload, and everything else works.

function recall(place) {
  try {
    return sessionStorage.getItem(place) ?? "";
  } catch {
    return "";
  }
}

function remember(place, draft) {
  try {
    if (draft) sessionStorage.setItem(place, draft);
    else sessionStorage.removeItem(place);
  } catch {
    // Only a reload would have needed it.
  }
}

const WAYS = {
  after_turn: "After this turn",
  after_tools: "After the tools; the answer is cut",
  now: "Now; tools get their time to clean up",
  kill: "By force; tools get no time",
};

const HINTS = {
  loading: "Esc stops the run, if it is still running.",
  idle: "Enter sends, Shift+Enter starts a new line.",
  starting: "Starting. Esc stops it as soon as it has begun.",
  running: "Esc stops, Enter steers with your prompt, Ctrl+Enter queues it.",
  patient: "It stops after this turn. Esc stops it now.",
  stopping: "Esc again forces the stop: tools get no more time.",
  forcing: "The stop is being forced.",
};
