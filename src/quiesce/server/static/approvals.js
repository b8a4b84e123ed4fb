// Approvals and questions of an agent. The calls wait until each has an answer; answered ones run meanwhile.

import { diffNode, isDiff } from "./diff.js";
import { h, pretty, prettyArguments, say, show } from "./dom.js";

/**
 * The cards for a run's interrupts. `answer(list)` sends answers, each { id, answer }: { type: "approve" },
 * { type: "deny", reason } or, for a question, any value. A single answer is sent at once, several together: those that are
 * there when Send is pressed. A question with a time limit is closed when it expires, by the server's clock, which `now()` returns; `signal` ends the timers.
 */
export function approvals(interrupts, answer, { now, signal }) {
  const chosen = new Map();
  const send = h("button", { type: "button", class: "primary", id: "send-answers", on: { click: () => deliver() } });
  const status = h("p", { class: "hint" });
  const foot = h("div", { class: "row end" }, status, send);

  async function deliver() {
    for (const each of cards) each.lock(true);
    send.disabled = true;
    const taken = await answer([...chosen].map(([id, given]) => ({ id, answer: given })));
    for (const each of cards) each.lock(Boolean(taken));
    if (!taken) look();
  }

  function choose(id, given) {
    chosen.set(id, given);
    look();
    if (interrupts.length === 1) deliver();
  }

  /** Show after each change what can be sent and which answers are missing. */
  function look() {
    const open = cards.filter((each) => !each.closed).length;
    show(foot, interrupts.length > 1 || open === 0);
    send.disabled = chosen.size === 0 && open > 0;
    say(send, open ? "Send the answers" : "Go on without an answer");
    say(status, open ? `${chosen.size} of ${open} answered` : "");
  }

  const cards = interrupts.map((interrupt) => card(interrupt, (given) => choose(interrupt.id, given)));
  interrupts.forEach((interrupt, index) => {
    const close = () => {
      chosen.delete(interrupt.id);
      cards[index].close();
      look();
    };
    if (interrupt.expires_at) closeInTime(interrupt.expires_at - now(), close, signal);
  });
  look();
  return h("section", { class: "approvals", "aria-label": "Questions for you" }, ...cards.map((each) => each.element), foot);
}

function closeInTime(seconds, close, signal) {
  // A browser's timer holds at most 24 days.
  const timer = setTimeout(close, Math.min(Math.max(0, seconds * 1000), 2 ** 31 - 1));
  signal.addEventListener("abort", () => clearTimeout(timer));
}

/** What the call would do, as text. The lines of a diff are coloured. */
function preview(interrupt) {
  const name = `Preview of ${interrupt.tool_name}`;
  const made = isDiff(interrupt.preview) ? diffNode(interrupt.preview, name) : h("pre", { tabindex: 0, role: "region", "aria-label": name }, interrupt.preview);
  made.classList.add("preview");
  return made;
}

function card(interrupt, choose) {
  const isLimit = interrupt.kind === "limit";
  const buttons = [];
  const mark = (pressed) => {
    for (const each of buttons) each.setAttribute("aria-pressed", String(each === pressed));
  };
  const press = (label, kind, given) => {
    const made = h("button", { type: "button", class: kind, "aria-pressed": "false", "aria-label": `${label} ${interrupt.tool_name}`.trim(), on: { click: () => { mark(made); choose(given()); } } }, label);
    buttons.push(made);
    return made;
  };
  const isApproval = interrupt.kind === "approval";
  const given = prettyArguments(interrupt.arguments);
  const field = h("input", { type: "text", id: `answer-${interrupt.id}`, autocomplete: "off" });
  const until = h("span", { class: "hint", role: "status" }, interrupt.expires_at ? `Answer until ${new Date(interrupt.expires_at * 1000).toLocaleTimeString("en")}` : "");
  const element = h(
    "article",
    { class: "card approval", "aria-label": isLimit ? "Raise the limit?" : isApproval ? `Approve ${interrupt.tool_name}?` : `Question from ${interrupt.tool_name}` },
    h("h2", {}, ...(isLimit ? ["A limit is reached"] : [isApproval ? "May " : "", h("code", {}, interrupt.tool_name), isApproval ? " run?" : " asks"])),
    interrupt.reason !== null && interrupt.reason !== undefined ? h("p", { class: "words" }, isLimit ? `${interrupt.reason.message}.` : pretty(interrupt.reason)) : "",
    interrupt.preview ? preview(interrupt) : "",
    isLimit ? "" : given ? h("pre", { tabindex: 0, "aria-label": `Arguments of ${interrupt.tool_name}` }, given) : h("p", { class: "hint" }, "It is called without arguments."),
    h("label", { for: `answer-${interrupt.id}` }, isLimit ? "How much more is allowed (empty: as much again)" : isApproval ? "Reason, if you deny it (the model gets it)" : "Your answer"),
    field,
    h("div", { class: "row" },
      isLimit
        ? press("Go on", "primary", () => (Number(field.value) > 0 ? Number(field.value) : { type: "approve" }))
        : isApproval
        ? press("Approve", "primary", () => ({ type: "approve" }))
        : press("Answer", "primary", () => field.value),
      press(isLimit ? "End the run" : "Deny", "", () => ({ type: "deny", reason: field.value })),
      until),
  );
  return {
    element,
    closed: false,
    lock(locked) {
      for (const each of [...buttons, field]) each.disabled = locked || this.closed;
    },
    close() {
      this.closed = true;
      element.classList.add("closed");
      say(until, "The time to answer is over. The call is not run.");
      this.lock(true);
    },
  };
}
