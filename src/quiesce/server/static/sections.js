// Parts of a long answer. Those that are far from the view are empty, and have the height that they had.

import { h } from "./dom.js";

const NEAR = 1500; // pixels above and below the view within which a section is drawn
const LINE = 25; // the height of a line, for a section that was never drawn
const owners = new WeakMap();
const watcher = new IntersectionObserver((seen) => seen.forEach(({ target, isIntersecting, boundingClientRect }) => owners.get(target)?.look(isIntersecting, boundingClientRect.height)), { rootMargin: `${NEAR}px 0px` });

/** Some complete blocks. `draw()` makes their nodes again from their text. */
export class Section {
  constructor(nodes, lines, draw) {
    this.lines = lines;
    this.draw = draw;
    this.isDrawn = true;
    this.element = h("div", { class: "md-section" }, ...nodes);
    owners.set(this.element, this);
    watcher.observe(this.element);
  }

  /** Leave it out until it comes near the view: the page has just been given all of a long answer. */
  putOff() {
    this.#empty(this.lines * LINE);
  }

  /** `height` is what the browser has measured already: asking for it here would lay out the page once for each section. */
  look(isNear, height) {
    if (isNear && !this.isDrawn) this.#fill();
    else if (!isNear && this.isDrawn && !this.#isUsed()) this.#empty(height);
  }

  #fill() {
    this.isDrawn = true;
    this.element.style.blockSize = "";
    this.element.replaceChildren(...this.draw());
  }

  #empty(height) {
    if (!height) return; // it is in something that is folded
    this.isDrawn = false;
    this.element.style.blockSize = `${height}px`;
    this.element.replaceChildren();
  }

  /** Whether a person has selected something in it, or has the focus there. */
  #isUsed() {
    const selection = getSelection();
    return this.element.contains(document.activeElement) || (!selection.isCollapsed && selection.containsNode(this.element, true));
  }
}
