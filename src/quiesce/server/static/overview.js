// The card above a run: the timeline, and below it the trace, which is loaded when it is opened first.

import { h, say, show } from "./dom.js";
import { timeline } from "./timeline.js";
import { count } from "./words.js";

export class Overview {
  /** `now()` is the server's clock; `stopTool(tool)` stops a tool in the trace. */
  constructor(now, stopTool) {
    this.now = now;
    this.stopTool = stopTool;
    this.story = null;
    this.trace = null;
    this.picture = h("div", { class: "picture" });
    this.title = h("summary", {}, "Trace");
    this.details = h("details", { class: "trace", id: "trace", on: { toggle: () => this.#open() } }, this.title);
    this.element = h("section", { class: "card timeline-card", "aria-label": "Timeline", hidden: true }, this.picture, this.details);
  }

  update(story) {
    this.story = story;
    const calls = story.calls.length;
    show(this.element, calls > 0);
    show(this.picture, !story.timeless);
    if (!calls) return;
    const width = Math.floor(this.picture.clientWidth);
    if (width > 0 && !story.timeless) this.picture.replaceChildren(timeline(story, this.now(), width));
    const tools = story.tools.size;
    say(this.title, `Trace: ${count(calls)} model ${calls === 1 ? "call" : "calls"}, ${count(tools)} ${tools === 1 ? "tool" : "tools"}`);
    if (this.details.open) this.trace?.update(story, this.now());
  }

  async #open() {
    if (!this.details.open) return;
    if (!this.trace) {
      const { Trace } = await import("./trace.js");
      this.trace ??= new Trace(this.stopTool);
      this.details.append(this.trace.element);
    }
    this.trace.update(this.story, this.now());
  }
}
