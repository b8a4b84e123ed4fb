// A run's page: the conversation as it streams, the picture, the stop, and the receipt.

import { client, clockSkew, insist, ServerProblem, Starter } from "./api.js";
import { Composer } from "./composer.js";
import { Conversation, retold } from "./conversation.js";
import { h, say, show } from "./dom.js";
import { follow, Line } from "./follow.js";
import { setTitle } from "./notifications.js";
import { Overview } from "./overview.js";
import { PromptQueue } from "./queue.js";
import { lostCard, receiptCard, stillRunning } from "./receipt.js";
import { segment, segmentOf, split } from "./segments.js";
import { hasEnded, modeOf, stateWords } from "./state.js";
import { nextSteps } from "./steps.js";
import { askedAtFirst, before, Story, textOf, wordsOf } from "./story.js";
import { count } from "./words.js";

const TICK = 250;
// A run that ends so has done what it was asked: the next queued prompt is sent.
const FINISHED = ["end_turn", "stop_sequence"];

/**
 * Show run `id` in `place`, below the `segments` of its session that are already drawn; `isNew` if this tab has just started
 * it. Returns a function that leaves the page.
 */
export function runPage(place, id, shell, { stopAtOnce = false, segments = null, isNew = false } = {}) {
  const page = new RunPage(id, shell, isNew);
  place.append(page.element);
  if (segments) page.goOnBelow(segments);
  page.live();
  if (stopAtOnce) page.stop("now");
  return () => page.leave();
}

class RunPage {
  constructor(id, shell, isNew) {
    this.id = id;
    this.isNew = isNew;
    this.shell = shell;
    this.left = new AbortController();
    this.story = new Story();
    this.run = null;
    this.snapshot = [];
    this.stopping = null; // { mode, since, delivered } once Stop was pressed here
    this.drawing = 0;
    this.pausing = false; // whether the run waits, or will wait, before its next step
    this.going = false; // to another run
    this.starter = new Starter();
    this.isWatched = false; // a run that had ended before anybody looked sends nothing
    this.following = true; // until the person scrolls up, the page scrolls with the answer
    this.scrolledTo = 0;
    this.line = new Line(() => document.hidden && this.run?.on_disconnect !== "cancel"); // such a run would be stopped without a reader
    this.#build();
  }

  #build() {
    this.title = h("h1", { class: "run-title" }, "Run");
    this.state = h("span", { id: "state", role: "status", "aria-live": "polite" }, "Loading");
    this.since = h("span", { id: "since" });
    this.pill = h("p", { class: "pill", id: "state-line" }, h("span", { class: "dot", "aria-hidden": "true" }), h("span", {}, this.state, this.since));
    this.meta = h("p", { class: "meta" });
    this.exports = h("p", { class: "meta exports", hidden: true }, "Export: ", this.#export("markdown", "Markdown"), " ", this.#export("json", "JSON"));
    this.usage = h("span", { class: "meta", id: "live-usage" });
    this.jump = h("button", { type: "button", id: "jump", hidden: true, on: { click: () => this.#toTheEnd() } }, "Jump to the end");
    this.end = h("span", { class: "page-end" });
    this.overview = new Overview(() => this.#now(), (tool) => this.conversation.stopTool(tool));
    this.earlier = h("div", { class: "segments" });
    this.later = h("p", { class: "later", hidden: true });
    this.conversation = new Conversation(this.id, (error) => this.#complain(error));
    this.questions = h("div");
    this.receipt = h("div");
    this.composer = new Composer(`run.${this.id}`, "Message", {
      send: (text) => this.#start(text),
      steer: (text) => this.#steer(text),
      stop: (mode, reason) => this.stop(mode, reason),
      stopLater: () => this.stop("after_turn"),
      queue: (prompt) => this.queue.add(prompt),
      pause: () => this.#pause(),
    });
    this.queue = new PromptQueue((prompt) => this.#start(prompt));
    this.composer.setMode("loading");
    this.composer.element.append(this.jump);
    this.failure = h("p", { class: "problem", role: "alert", hidden: true });
    this.element = h(
      "div",
      { class: "page run-page" },
      h("div", { class: "run-head" }, h("a", { href: "#/", class: "back" }, "All runs"), this.title, this.meta, this.exports),
      h("div", { class: "run-line" }, this.pill, this.usage),
      this.failure,
      this.earlier,
      this.overview.element,
      this.conversation.element,
      this.questions,
      this.receipt,
      this.later,
      this.queue.element,
      this.composer.element,
      this.end,
    );
  }

  #export(kind, name) {
    const save = async () => {
      const { exportAs } = await import("./export.js");
      await exportAs(kind, this.run).catch((error) => this.#complain(error));
    };
    return h("button", { type: "button", class: "quiet small", "aria-label": `Export the conversation as ${name}`, on: { click: save } }, name);
  }

  // --- Living -------------------------------------------------------------------------------------------------------

  async live() {
    this.onKey = (event) => this.#key(event);
    document.addEventListener("keydown", this.onKey);
    this.ticker = setInterval(() => this.#tick(), TICK);
    this.resizing = new ResizeObserver(() => this.#draw());
    this.resizing.observe(this.overview.picture);
    this.resizing.observe(this.composer.element); // it grows with the draft, over the words that one is reading
    this.watching = new IntersectionObserver((seen) => show(this.jump, !seen.at(-1).isIntersecting), { rootMargin: "0px 0px 240px" });
    this.watching.observe(this.end);
    addEventListener("scroll", () => this.#scrolled(), { passive: true, signal: this.left.signal });
    try {
      await this.#look();
      this.isWatched = this.isNew || !this.over;
      if (this.wantedStop) this.stop("now"); // a run that is over is left alone
      await this.#follow();
      if (!this.left.signal.aborted) await this.#look();
      this.#settled();
      if (this.isWatched && FINISHED.includes(this.run.stop_reason)) this.queue.sendNext();
      await this.#watchTheRest();
    } catch (error) {
      if (this.left.signal.aborted) return;
      if (!(error instanceof ServerProblem)) throw error;
      this.#notHere(error);
    } finally {
      clearInterval(this.ticker);
    }
  }

  /** A call was abandoned: its late outcome will be in the receipt. */
  async #watchTheRest() {
    clearInterval(this.ticker);
    const isLeft = () => this.lastReceipt && stillRunning(this.lastReceipt).length > 0;
    if (!isLeft()) return;
    const done = new AbortController();
    this.left.signal.addEventListener("abort", () => done.abort());
    this.shell.feed.listen(async (id) => {
      if (id !== null && id !== this.id) return;
      await this.#look();
      this.#settled();
      if (!isLeft()) done.abort();
    }, done.signal);
  }

  /** The run does not exist: show that, and disable the composer. */
  #notHere(error) {
    say(this.state, error.status === 404 ? "Not found" : "Not available");
    this.pill.dataset.tone = "idle";
    say(this.failure, error.message);
    show(this.failure, true);
    show(this.composer.element, false);
  }

  async #follow() {
    try {
      await follow(this.id, {
        signal: this.left.signal,
        line: this.line,
        onEvent: (event, at) => this.#happened(event, at),
        onLine: (problem) => this.#line(problem),
      });
    } catch (error) {
      // The events of an ended run may have been dropped; its conversation and receipt are still there.
      if (!(error instanceof ServerProblem) || !this.over) throw error;
    }
  }

  leave() {
    this.left.abort();
    clearInterval(this.ticker);
    clearTimeout(this.drawing);
    this.resizing.disconnect();
    this.watching.disconnect();
    document.removeEventListener("keydown", this.onKey);
    this.shell.connection(null);
  }

  /** Ask the server for the run as a whole. */
  async #look() {
    const detail = await insist(() => client.showRun(this.id), {
      signal: this.left.signal,
      onRetry: () => this.#line(new ServerProblem(0, "", "", "")),
    });
    this.shell.connection(null);
    this.run = detail.run;
    this.snapshot = detail.messages;
    this.lastReceipt = detail.receipt;
    this.pausing = detail.run.paused;
    if (detail.run.session) this.queue.open(detail.run.session);
    this.#ask();
    this.#drawAll();
  }

  #happened(event, at) {
    this.story.apply(event, at);
    if (event.type === "run_paused" || event.type === "run_resumed") this.pausing = this.story.paused;
    if (event.type === "message_added" && this.story.messages.length === 1) this.#tellEarlier();
    if (event.type === "interrupt_raised" && !this.over) this.#lookAgain();
    if (event.type === "stop_requested" || event.type === "run_ended") this.#drawAll();
    else this.#drawSoon();
  }

  #line(problem) {
    const text = this.story.end ? "Connection lost. Trying again…" : "Connection lost. The run goes on without this page; trying again…";
    this.shell.connection(problem ? text : null);
  }

  /** Whether the server has reported the end of the run, with its last event or after a crash. */
  get over() {
    return this.story.end !== null || (this.run !== null && hasEnded(this.run));
  }

  // --- Drawing ------------------------------------------------------------------------------------------------------

  /** Draw what changes with each event. The timeline, which is expensive, is drawn less often. */
  #draw() {
    clearTimeout(this.drawing);
    this.drawing = 0;
    if (this.left.signal.aborted || !this.run) return;
    const isAtEnd = this.#scrolled();
    this.#head();
    this.conversation.update(this.story);
    this.#drawMode();
    this.composer.setPaused(this.pausing);
    this.composer.canQueue = Boolean(this.run.session);
    this.queue.wait(!this.over);
    this.wasWatching = this.isWatched ? this.following : isAtEnd;
    if (this.following && !this.over) scrollTo(0, document.documentElement.scrollHeight);
  }

  /** See whether the person has scrolled up or to the end; returns the latter. What grows on the page is no scrolling. */
  #scrolled() {
    const isAtEnd = scrollY + innerHeight > document.documentElement.scrollHeight - 80;
    if (isAtEnd) this.following = true;
    else if (scrollY < this.scrolledTo) this.following = false;
    this.scrolledTo = scrollY;
    return isAtEnd;
  }

  /** Draw whether the run goes on or is being stopped. It measures nothing, so that a stop is shown without a layout of the page. */
  #drawMode() {
    this.#stateLine();
    const mode = this.#mode();
    this.composer.setMode(mode);
    this.element.dataset.mode = mode;
    this.composer.setLabel(this.#label(mode));
  }

  #drawSoon() {
    this.drawing ||= setTimeout(() => this.#draw(), 16);
  }

  /** Go to the end. Parts of a long answer get their height when they come into view, hence twice. */
  #toTheEnd() {
    const go = () => scrollTo(0, document.documentElement.scrollHeight);
    this.following = true;
    go();
    requestAnimationFrame(() => requestAnimationFrame(go));
  }

  #drawAll() {
    this.#draw();
    if (this.story.end && this.run) this.#drawReceipt(this.lastReceipt ?? this.story.end.receipt, this.story.end.error);
    this.#picture();
  }

  #mode() {
    return this.over ? "idle" : modeOf({ run: this.run, story: this.story, stopping: this.stopping });
  }

  #label(mode) {
    if (mode === "idle") return this.run.session ? "Next prompt" : "New conversation (this run has no session)";
    return mode === "running" ? "Steer the run" : "Draft";
  }

  #head() {
    const first = this.run.session && this.snapshot[0]?.type === "user" ? wordsOf(this.snapshot[0].content) : "";
    const title = first || this.run.prompt || this.story.prompt || "Run";
    say(this.title, title.length > 120 ? `${title.slice(0, 119)}…` : title);
    setTitle(`${title.slice(0, 60)} · Quiesce`);
    const parts = [this.run.agent, this.story.model, this.run.session ? `session ${this.run.session}` : "", `run ${this.id}`];
    say(this.meta, parts.filter(Boolean).join(" · "));
  }

  /** Draw what depends on the time: the status and the timeline. */
  #tick() {
    this.#stateLine();
    this.#use();
    this.#picture();
  }

  #stateLine() {
    if (!this.run) return;
    const [word, tone, since] = stateWords({ run: this.run, story: this.story, stopping: this.stopping, pausing: this.pausing, mode: this.#mode(), now: this.#now() });
    this.pill.dataset.tone = tone;
    say(this.state, word);
    say(this.since, since);
  }

  #picture() {
    if (this.run && !this.left.signal.aborted) this.overview.update(this.story);
  }

  /** The tokens so far, and what the finished model calls cost; at the end they are on the receipt. */
  #use() {
    const { input, output, spent } = this.story.used;
    const known = [input ? `${count(input)} tokens in` : "", output ? `about ${count(output)} out` : "", spent ? `${spent.value} so far` : ""];
    show(this.usage, !this.over);
    say(this.usage, known.filter(Boolean).join(" · "));
  }

  #now() {
    return Date.now() / 1000 + clockSkew();
  }

  /** Show the end of the run: the receipt, pending approvals, and earlier messages. */
  #settled() {
    if (this.left.signal.aborted) return;
    this.#draw();
    const isTorn = this.run.state === "crashed" && this.story.entries.length > 0; // its events say more than what was saved
    if (this.story.gap || (!this.story.end && !isTorn)) this.#retell();
    else this.#tellEarlier();
    if (!this.story.end) this.story.rest(this.story.lastAt);
    this.#tellLater();
    this.#ask();
    show(this.exports, true);
    this.#drawReceipt(this.lastReceipt ?? this.story.end?.receipt, this.run.error ?? this.story.end?.error);
    this.conversation.update(this.story);
  }

  /** Draw the receipt that the last event has at once; again when the server has said more: what can be undone, what is asked. */
  #drawReceipt(receipt, error) {
    const actions = this.#actions(receipt);
    const waits = hasEnded(this.run) ? this.run.interrupts?.length > 0 : receipt?.stop_reason === "interrupt";
    const drawn = JSON.stringify([receipt, error, waits, actions]);
    if (drawn === this.drawnReceipt) return; // a button that is being pressed stays
    this.drawnReceipt = drawn;
    const isFirst = !this.receipt.childElementCount;
    const focused = this.receipt.contains(document.activeElement) ? document.activeElement.id : "";
    show(this.usage, false);
    this.receipt.replaceChildren(receipt ? receiptCard(receipt, error, actions, waits) : lostCard(actions));
    if (focused) document.getElementById(focused)?.focus();
    if (isFirst && this.wasWatching) (this.questions.firstElementChild ?? this.receipt).scrollIntoView({ block: "nearest" });
  }

  /** Show a card for each question that has no answer, also while other calls of the run go on. */
  async #ask() {
    const interrupts = this.run.interrupts ?? [];
    const asked = interrupts.map((each) => each.id).join(" ");
    if (asked === this.asked) return; // what is chosen and typed there stays
    this.asked = asked;
    if (!interrupts.length) return this.questions.replaceChildren();
    const { approvals } = await import("./approvals.js");
    if (asked !== this.asked || this.left.signal.aborted) return;
    this.questions.replaceChildren(approvals(interrupts, (answers) => this.#answer(answers), { now: () => this.#now(), signal: this.left.signal }));
    if (this.over && this.wasWatching) this.questions.scrollIntoView({ block: "nearest" });
  }

  async #lookAgain() {
    try {
      await this.#look();
    } catch (error) {
      this.#complain(error);
    }
  }

  /** Begin below what is on the page of the session already. */
  goOnBelow(segments) {
    this.isToldEarlier = true;
    this.story.isBelow = true;
    this.earlier.append(...segments);
    scrollTo(0, document.documentElement.scrollHeight);
  }

  /** Show the earlier prompts of the session, above this one. */
  async #tellEarlier() {
    if (this.isToldEarlier || this.story.gap || !this.run?.session) return;
    const messages = before(this.snapshot, this.story, this.over);
    if (messages.length === this.toldEarlier) return;
    this.toldEarlier = messages.length;
    const runs = await this.#sessionRuns();
    if (this.left.signal.aborted || this.toldEarlier !== messages.length) return;
    const older = runs.filter((run) => run.created_at < this.run.created_at);
    const wasAtTop = scrollY < 200;
    this.earlier.replaceChildren(...split(messages, older).map(segmentOf));
    if (messages.length && wasAtTop) (this.overview.element.hidden ? this.conversation.element : this.overview.element).scrollIntoView();
  }

  async #sessionRuns() {
    try {
      return (await client.showSession(this.run.session)).runs;
    } catch {
      return []; // the messages are shown without receipts
    }
  }

  /** A link to the end of the session, if this run is not its last. */
  #tellLater() {
    const runs = [...this.shell.feed.runs.values()].filter((run) => run.session && run.session === this.run.session);
    const last = runs.reduce((newest, run) => (run.created_at > newest.created_at ? run : newest), this.run);
    show(this.later, last.id !== this.id);
    this.later.replaceChildren("The session goes on after this. ", h("a", { href: `#/runs/${encodeURIComponent(last.id)}` }, "Go to its last prompt"));
  }

  /** Some events are missing, so the conversation is loaded from the server. */
  #retell() {
    const runs = [...this.shell.feed.runs.values()].filter((run) => run.session && run.session === this.run.session);
    const whole = retold(this.id, this.snapshot, [...runs, this.run].flatMap((run) => run.answers));
    this.conversation.element.replaceWith(whole.element);
    this.conversation = whole;
    this.story.changed.clear();
  }

  // --- Acting -------------------------------------------------------------------------------------------------------

  #key(event) {
    if (event.key !== "Escape" || event.repeat || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (this.over) return;
    event.preventDefault();
    if (this.run) this.stop();
    else this.wantedStop = true;
  }

  /** Request a stop; the second time, by force. The request is retried while the network is down. */
  async stop(mode, reason) {
    if (this.over || this.stopping?.mode === "kill") return;
    const next = mode ?? (this.#mode() === "stopping" ? "kill" : "now");
    const mine = { mode: next, since: this.stopping?.since ?? performance.now(), delivered: false, troubled: false };
    this.stopping = mine;
    // Without the signal of the page: leaving it does not take the stop back.
    const sent = insist(() => client.cancelRun(this.id, { mode: next, reason: reason || "Stop was pressed in the console" }), {
      onRetry: () => {
        mine.troubled = true;
        this.#tick();
      },
    });
    this.#drawMode();
    this.#drawSoon();
    try {
      const answer = await sent;
      mine.delivered = true;
      if (hasEnded(answer.run)) this.#wasOver(answer);
    } catch (error) {
      if (this.stopping === mine) this.stopping = null;
      this.#complain(error);
    }
    this.#draw();
  }

  /** The run had ended before the stop. If its last event does not arrive soon, the connection is dead. */
  #wasOver(answer) {
    this.run = answer.run;
    this.lastReceipt = answer.receipt;
    setTimeout(() => this.story.end ?? this.line.hangUp(), 1000);
  }

  async #steer(text) {
    try {
      await client.steerRun(this.id, { text });
      return true;
    } catch (error) {
      return this.#complain(error);
    }
  }

  /** Let the run wait before its next step, or go on. It is said at once, and taken back when the request fails. */
  async #pause() {
    const wanted = !this.pausing;
    this.pausing = wanted;
    this.#draw();
    try {
      await client.pauseRun(this.id, { paused: wanted });
    } catch (error) {
      this.pausing = !wanted;
      this.#draw();
      this.#complain(error);
    }
  }

  #actions(receipt) {
    return nextSteps(this.run, receipt, {
      continue: () => this.#go(() => client.continueRun(this.id)),
      steer: () => this.composer.focus("What should it do instead?"),
      retry: () => this.#retry(),
      undo: () => this.#undo(),
      dismiss: () => this.#dismiss(),
    });
  }

  #start(prompt) {
    const wanted = { prompt, agent: this.run.agent };
    if (this.run.session) wanted.session = this.run.session;
    return this.#go(async () => ({ run: await this.starter.start(wanted) }));
  }

  /** Send the same prompt again, from the conversation: the run's view has only its first characters. */
  #retry() {
    const first = askedAtFirst(this.run, this.story, this.snapshot);
    if (!first) return this.#complain(new ServerProblem(410, "forgotten", "The prompt is no longer known.", "Write it again."));
    const plain = first.content.every((part) => part.type === "text");
    return this.#start(plain ? textOf(first.content) : first.content);
  }

  #answer(answers) {
    return this.#go(() => client.resumeRun(this.id, { answers }));
  }

  async #dismiss() {
    try {
      await client.cancelRun(this.id, { reason: "The question was withdrawn in the console" });
      await this.#look();
      this.#settled();
      this.shell.announce("The question was withdrawn.");
      this.composer.focus();
    } catch (error) {
      this.#complain(error);
    }
  }

  async #undo() {
    try {
      const { receipt } = await client.undoRun(this.id);
      await this.#look();
      this.#settled();
      const all = receipt.undo ?? [];
      const done = all.filter((each) => each.outcome === "undone").length;
      this.shell.announce(all.length ? `${done} of ${all.length} undone.` : "There was nothing to undo.");
      document.getElementById("action-retry")?.focus();
    } catch (error) {
      this.#complain(error);
    }
  }

  /** Show the run that a request has started. */
  async #go(start) {
    if (this.going) return false; // pressed twice
    this.going = true;
    try {
      const { run } = await start();
      if (run.id === this.id) {
        // The run that this page shows has taken the answers.
        this.run = run;
        this.#ask();
        return true;
      }
      const isSame = run.session && run.session === this.run.session;
      this.shell.go(`#/runs/${encodeURIComponent(run.id)}`, { isNew: true, segments: isSame ? this.#asSegments() : null });
      return true;
    } catch (error) {
      return this.#complain(error);
    } finally {
      this.going = false;
    }
  }

  /** What is on the page, for the page of the run that follows in the same session. */
  #asSegments() {
    this.story.answered();
    this.conversation.update(this.story);
    return [...this.earlier.childNodes, segment(this.conversation.element, [this.run])];
  }

  #complain(error) {
    if (!(error instanceof ServerProblem)) {
      if (error?.name === "AbortError") return false;
      throw error;
    }
    this.composer.complain(error.text);
    return false;
  }
}
