// What the agent asks a person: to approve a tool, or to answer a question. Nothing runs until there is an answer.

import { h, pretty, say } from "./dom.js";

/**
 * The cards for a run's interrupts. `answer(list)` sends answers, each { id, answer }: { type: "approve" },
 * { type: "deny", reason } or, for a question, any value. One question is sent at once; several together.
 */
export function approvals(interrupts, answer) {
  const chosen = new Map();
  const send = h("button", { type: "button", class: "primary", id: "send-answers", disabled: true, on: { click: () => deliver() } }, "Send the answers");
  const status = h("p", { class: "hint" });

  async function deliver() {
    for (const each of cards) each.lock(true);
    const taken = await answer([...chosen].map(([id, given]) => ({ id, answer: given })));
    for (const each of cards) each.lock(Boolean(taken));
  }

  function choose(id, given) {
    chosen.set(id, given);
    send.disabled = chosen.size < interrupts.length;
    say(status, `${chosen.size} of ${interrupts.length} answered`);
    if (interrupts.length === 1) deliver();
  }

  const cards = interrupts.map((interrupt) => card(interrupt, (given) => choose(interrupt.id, given)));
  const several = interrupts.length > 1;
  return h("section", { class: "approvals", "aria-label": "Questions for you" }, ...cards.map((each) => each.element), several ? h("div", { class: "row end" }, status, send) : "");
}

function card(interrupt, choose) {
  const buttons = [];
  const mark = (pressed) => {
    for (const each of buttons) each.setAttribute("aria-pressed", String(each === pressed));
  };
  const press = (label, kind, given) => {
    const made = h("button", { type: "button", class: kind, "aria-pressed": "false", "aria-label": `${label} ${interrupt.tool_name}`, on: { click: () => { mark(made); choose(given()); } } }, label);
    buttons.push(made);
    return made;
  };
  const isApproval = interrupt.kind !== "question";
  const field = h("input", { type: "text", id: `answer-${interrupt.id}`, autocomplete: "off" });
  const element = h(
    "article",
    { class: "card approval", "aria-label": isApproval ? `Approve ${interrupt.tool_name}?` : `Question from ${interrupt.tool_name}` },
    h("h2", {}, isApproval ? "May " : "", h("code", {}, interrupt.tool_name), isApproval ? " run?" : " asks"),
    interrupt.reason !== null && interrupt.reason !== undefined ? h("p", { class: "words" }, pretty(interrupt.reason)) : "",
    h("pre", { tabindex: 0, "aria-label": `Arguments of ${interrupt.tool_name}` }, pretty(interrupt.arguments)),
    h("label", { for: `answer-${interrupt.id}` }, isApproval ? "Reason, if you say no (the model is told)" : "Your answer"),
    field,
    h("div", { class: "row" },
      isApproval
        ? press("Approve", "primary", () => ({ type: "approve" }))
        : press("Answer", "primary", () => field.value),
      press("Deny", "", () => ({ type: "deny", reason: field.value })),
      interrupt.expires_at ? h("span", { class: "hint" }, `Until ${new Date(interrupt.expires_at * 1000).toLocaleTimeString("en")}`) : ""),
  );
  return {
    element,
    lock(locked) {
      for (const each of [...buttons, field]) each.disabled = locked;
    },
  };
}
