// Elements from plain values. Text only ever becomes a text node: there is no way from here to markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element. `attributes` are set as such, except `on`, a table of listeners; false, null and undefined leave one out. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== false) element.append(child);
  return element;
}

/**
 * Have a button call `action` when it is pressed, also when the page moves it away under the pointer in the middle of the
 * press: the browser has no click for that. The second half of a double click is no second press.
 */
export function onPress(button, action) {
  let down = null; // where the button was when the pointer went down on it
  const end = (event) => {
    const began = down;
    down = null;
    if (!began || isIn(began, event) || isIn(button.getBoundingClientRect(), event)) action();
  };
  button.addEventListener("pointerdown", (event) => {
    down = event.button === 0 ? button.getBoundingClientRect() : null;
    if (down) button.setPointerCapture(event.pointerId); // the button is told of the end, wherever it is by then
  });
  button.addEventListener("pointercancel", () => {
    down = null;
  });
  button.addEventListener("pointerup", (event) => {
    const began = down;
    setTimeout(() => began && began === down && end(event)); // there was no click
  });
  button.addEventListener("click", (event) => {
    if (event.detail > 1) down = null;
    else end(event);
  });
  return button;
}

function isIn(box, { clientX, clientY }) {
  return clientX >= box.left && clientX <= box.right && clientY >= box.top && clientY <= box.bottom;
}

/** Set an element's text if it differs. Unchanged text keeps its selection, and screen readers do not repeat it. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Show or hide. */
export function show(element, visible) {
  if (element.hidden === visible) element.hidden = !visible;
}

/** The arguments of a tool call; nothing without any. */
export function prettyArguments(given) {
  return given && Object.keys(given).length ? pretty(given) : "";
}

/** A value as readable JSON; a string as itself. */
export function pretty(value) {
  if (typeof value === "string") return value;
  try {
    return JSON.stringify(value, null, 2) ?? "";
  } catch {
    return String(value);
  }
}

/** Copy a text; also where the page is not served from a secure origin, and the browser has no clipboard for it. */
export async function copyText(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const field = h("textarea", { class: "visually-hidden", "aria-hidden": "true" });
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

/** A button that copies the code beside it, or what `text()` returns. The press is handled for the whole page. */
export function copyButton(label, text) {
  const made = h("button", { type: "button", class: "quiet small copy", "aria-label": label }, "Copy");
  if (text) texts.set(made, text);
  return made;
}

const texts = new WeakMap();

/** The code of a block, whose parts are lines of it. */
function codeOf(block) {
  return [...(block?.querySelectorAll(".code-part") ?? [])].map((part) => part.textContent).join("\n");
}

document.addEventListener("click", async (event) => {
  const pressed = event.target.closest?.("button.copy");
  if (!pressed) return;
  const text = texts.get(pressed)?.() ?? codeOf(pressed.closest(".code"));
  try {
    await copyText(text);
    say(pressed, "Copied");
  } catch {
    say(pressed, "Not copied");
  }
  setTimeout(() => say(pressed, "Copy"), 1500);
});
