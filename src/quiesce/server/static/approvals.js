// Approvals and questions of an agent. The calls wait until each has an answer; answered ones run meanwhile.

import { diffNode, isDiff } from "./diff.js";
import { h, pretty, prettyArguments, say, show } from "./dom.js";
import { Remember } from "./remember.js";

/**
 * The cards for a run's interrupts. `answer(list)` sends answers, each { id, answer, remember }: { type: "approve" },
 * { type: "deny", reason } or, for a question, any value; `remember` is for later calls too. A single answer is sent at once, several together: those that are
 * there when Send is pressed. A question with a time limit is closed when it expires, by the server's clock, which `now()` returns; `signal` ends the timers.
 */
export function approvals(interrupts, answer, { now, signal, id = "send-answers" }) {
  const chosen = new Map();
  const send = h("button", { type: "button", class: "primary", id, on: { click: () => deliver() } });
  const status = h("p", { class: "hint" });
  const foot = h("div", { class: "row end" }, status, send);

  async function deliver() {
    for (const each of cards) each.lock(true);
    send.disabled = true;
    const taken = await answer([...chosen].map(([id, given]) => ({ id, ...given })));
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
  return h("div", { class: "approvals", role: "group", "aria-label": "Questions for you" }, ...cards.map((each) => each.element), foot);
}

function closeInTime(seconds, close, signal) {
  // A browser's timer holds at most 24 days.
  const timer = setTimeout(close, Math.min(Math.max(0, seconds * 1000), 2 ** 31 - 1));
  signal.addEventListener("abort", () => clearTimeout(timer));
}

/** What the call would do, as text. The lines of a diff are coloured. */
function preview(interrupt) {
  const name = `Preview of ${interrupt.tool_name}`;
  const made = isDiff(interrupt.preview) ? diffNode(interrupt.preview, name) : h("pre", { tabindex: 0, role: "group", "aria-label": name }, interrupt.preview);
  made.classList.add("preview");
  return made;
}

/** The arguments that the tool will be called with, to look at and to change. `value()` throws for what is no JSON object. */
function editor(interrupt) {
  const given = prettyArguments(interrupt.arguments);
  if (!given || interrupt.kind === "limit") return { nodes: interrupt.kind === "limit" ? [] : [h("p", { class: "hint" }, "It is called without arguments.")], value: () => null };
  const name = `Arguments of ${interrupt.tool_name}`;
  const shown = h("pre", { tabindex: 0, dir: "ltr", role: "group", "aria-label": name }, given);
  const field = h("textarea", { class: "mono", rows: Math.min(16, given.split("\n").length + 1), spellcheck: "false", dir: "ltr", "aria-label": `${name}, to change`, hidden: true });
  field.value = given;
  const edit = h("button", { type: "button", class: "quiet small", on: { click: () => toggle(field.hidden) } }, "Change the arguments");
  const toggle = (open) => {
    show(field, open);
    show(shown, !open);
    say(edit, open ? "Discard my changes" : "Change the arguments");
    if (!open) field.value = given;
    else field.focus();
  };
  const value = () => {
    if (field.hidden || field.value === given) return null;
    const parsed = JSON.parse(field.value);
    if (parsed === null || typeof parsed !== "object" || Array.isArray(parsed)) throw new SyntaxError("not an object");
    return parsed;
  };
  return { nodes: [shown, field, h("div", {}, edit)], value };
}

/** The answer that approves a call: with arguments when a person has changed them. */
function approval(value) {
  const changed = value();
  return changed === null ? { type: "approve" } : { type: "approve", arguments: changed };
}

// A tool that offers more than this is answered in the field.
const MOST_OPTIONS = 20;
const LABELS = { limit: "How much more is allowed (empty: the same amount again)", approval: "Reason, if you deny it (the model gets it)", question: "Your answer", choice: "Or another answer" };
const TITLES = { limit: "Raise the limit?", approval: "Approve", question: "Question from" };

/** What a tool asks: { text, options }. A reason with `options` is a choice. */
function asked({ kind, reason }) {
  if (reason === null || reason === undefined) return { text: "", options: [] };
  if (kind === "limit") return { text: `${reason.message}.`, options: [] };
  const isChoice = kind === "question" && Array.isArray(reason.options) && reason.options.length <= MOST_OPTIONS;
  return isChoice ? { text: pretty(reason.question ?? ""), options: reason.options } : { text: pretty(reason), options: [] };
}

function headline(interrupt) {
  const name = h("code", {}, interrupt.tool_name);
  return { limit: ["A limit is reached"], approval: ["May ", name, " run?"] }[interrupt.kind] ?? [name, " asks"];
}

function card(interrupt, choose) {
  const { kind, tool_name: tool } = interrupt;
  const buttons = [];
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const complain = (text) => {
    say(problem, text);
    show(problem, Boolean(text));
  };
  const press = (label, look, given) => {
    const decide = () => {
      try {
        const answer = given();
        complain("");
        for (const each of buttons) each.setAttribute("aria-pressed", String(each === made));
        choose({ answer, ...(answer?.type === "approve" ? remember?.value() : {}) });
      } catch (error) {
        if (!(error instanceof SyntaxError)) throw error;
        complain("The arguments are not a JSON object.");
      }
    };
    const made = h("button", { type: "button", class: look, "aria-pressed": "false", "aria-label": `${label} ${tool}`.trim(), on: { click: decide } }, label);
    buttons.push(made);
    return made;
  };
  const edited = editor(interrupt);
  const { text, options } = asked(interrupt);
  const remember = kind === "approval" ? new Remember(interrupt) : null;
  const field = h("input", { type: "text", id: `answer-${interrupt.id}`, autocomplete: "off", dir: "auto" });
  const yes = {
    limit: () => press("Go on", "primary", () => (Number(field.value) > 0 ? Number(field.value) : { type: "approve" })),
    approval: () => press("Approve", "primary", () => approval(edited.value)),
  }[kind] ?? (() => press("Answer", "primary", () => field.value));
  const choices = options.map((option) => press(pretty(option), "", () => option));
  const said = yes();
  const no = press(kind === "limit" ? "End the run" : "Deny", "", () => ({ type: "deny", reason: field.value }));
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || event.repeat) return;
    event.preventDefault();
    // What is written for an approval is the reason of a no; only an empty field leaves the question open.
    if (kind !== "approval") said.click();
    else if (field.value.trim()) no.click();
  });
  const until = h("span", { class: "hint", role: "status" }, interrupt.expires_at ? `Answer until ${new Date(interrupt.expires_at * 1000).toLocaleTimeString("en")}` : "");
  const element = h(
    "article",
    { class: "card approval", "aria-label": kind === "limit" ? TITLES.limit : `${TITLES[kind] ?? TITLES.question} ${tool}${kind === "approval" ? "?" : ""}` },
    h("h2", {}, ...headline(interrupt)),
    text ? h("p", { class: "words", dir: "auto" }, text) : "",
    choices.length ? h("div", { class: "row", role: "group", "aria-label": "Options" }, ...choices) : "",
    interrupt.preview ? preview(interrupt) : "",
    edited.nodes,
    problem,
    h("label", { for: `answer-${interrupt.id}` }, choices.length ? LABELS.choice : LABELS[kind]),
    field,
    remember?.element,
    h("div", { class: "row" }, said, no, until),
  );
  return {
    element,
    closed: false,
    lock(locked) {
      for (const each of [...buttons, ...element.querySelectorAll("input, textarea, select")]) each.disabled = locked || this.closed;
    },
    close() {
      this.closed = true;
      element.classList.add("closed");
      say(until, "The time to answer is over. The call is not run.");
      this.lock(true);
    },
  };
}
