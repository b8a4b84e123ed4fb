// The page of one user: the newest task of the session `project`, drawn from the events of its runs.
// What is asked, and the receipt, always come from GET /runs/{id}: the server is right, the page only shows it.

const SESSION = "project";
const DIFF = /^--- .*\n\+\+\+ /m;
const LONGEST = 20000; // characters of one result on the page
const $ = (selector, within = document) => within.querySelector(selector);
const copy = (id) => $(`#${id}`).content.firstElementChild.cloneNode(true);

let user = "";
let run = null; // the newest run of the task
let source = null; // its event stream
let isBusy = false; // a stop or an undo is under way
const cards = new Map(); // by the id of the call
let answer = null; // the paragraph that text goes to

// --- Talking to the server ------------------------------------------------------------------------------------------

async function call(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(`agent/${path}`, options);
  const data = await response.json();
  if (!response.ok) throw Object.assign(new Error([data.error.message, data.error.todo].filter(Boolean).join(" ")), { status: response.status });
  return data;
}

async function guarded(work, alert = $("#alert")) {
  alert.hidden = true;
  try {
    return await work();
  } catch (error) {
    alert.textContent = error instanceof TypeError ? "The server does not answer. Try again in a moment." : error.message;
    alert.hidden = false;
    return null;
  }
}

// --- The task: its runs, one after the other -------------------------------------------------------------------------

async function load() {
  const { runs } = await call(`runs?session=${SESSION}&limit=1000`);
  clear();
  if (!runs.length) return show(null);
  const task = runs.filter((each) => each.task === runs[0].task).reverse();
  for (const each of task) await follow(each, each !== task.at(-1));
}

function clear() {
  source?.close();
  cards.clear();
  answer = null;
  run = null;
  $("#task").replaceChildren();
  $("#receipt").hidden = true;
}

/** Do something that makes the page longer; a reader who was at its end stays there. */
function atEnd(work) {
  const main = $("main");
  const isAtEnd = main.scrollHeight - main.scrollTop - main.clientHeight < 40;
  work();
  if (isAtEnd) main.scrollTop = main.scrollHeight;
}

/** Draw the events of a run; with `toEnd`, return when all are drawn. A lost connection is resumed by the browser. */
function follow(view, toEnd = false) {
  source?.close();
  show(view);
  const stream = (source = new EventSource(`agent/runs/${view.id}/events`));
  const drawn = new Promise((resolve) => {
    const take = (message) => {
      const event = JSON.parse(message.data);
      atEnd(() => DRAW[event.type](event));
      if (event.type === "interrupt_raised" && !toEnd) refresh(view.id);
      if (event.type === "run_ended") {
        stream.close();
        resolve();
        if (!toEnd) refresh(view.id);
      }
    };
    for (const type of Object.keys(DRAW)) stream.addEventListener(type, take);
    stream.onerror = () => {
      if (run?.id === view.id) say("The connection was lost. Connecting again …");
      if (stream.readyState === EventSource.CLOSED) setTimeout(() => run?.id === view.id && source === stream && guarded(load), 1000);
    };
    stream.onopen = () => run?.id === view.id && show(run);
  });
  return toEnd ? drawn : Promise.resolve();
}

async function refresh(id) {
  const detail = await guarded(() => call(`runs/${id}`));
  if (detail && run?.id === id) show(detail.run, detail.receipt);
}

/** What is asked, the buttons, the status and the receipt, from the server's view of the newest run. */
function show(view, receipt = null) {
  run = view;
  const asked = view?.interrupts ?? [];
  const isActive = view !== null && !["ended", "crashed"].includes(view.state);
  atEnd(() => showApprovals(asked));
  $("#send").disabled = isActive || isBusy || !user;
  $("#stop").disabled = !(isActive || asked.length) || isBusy;
  $("#take-back").disabled = !(isActive || asked.length || view?.undoable.length) || isBusy;
  $("#take-back").textContent = isActive || asked.length ? "Stop and take it all back" : "Take it all back";
  if (!isBusy) say(statusOf(view, asked, isActive));
  const isOver = receipt !== null && !isActive && !asked.length;
  atEnd(() => {
    $("#receipt").hidden = !isOver;
    if (isOver) showReceipt(view, receipt);
  });
}

function statusOf(view, asked, isActive) {
  if (!user) return "Sign in to begin.";
  if (view === null) return "Nothing is running.";
  if (view.state === "stopping") return view.waiting_for.length ? `Stopping: waiting for ${view.waiting_for.join(", ")} …` : "Stopping …";
  if (asked.length) return `Waiting for you: ${asked.length === 1 ? "one decision" : `${asked.length} decisions`}.`;
  return isActive ? "Working …" : "Nothing is running.";
}

const say = (text) => { $("#status").textContent = text; };

// --- Drawing events -------------------------------------------------------------------------------------------------

const DRAW = {
  message_added({ message }) {
    if (message.type === "user") add("p", "prompt", textOf(message.content));
    answer = null;
  },
  text({ text }) {
    answer ??= add("p", "answer", "");
    answer.append(text);
  },
  tool_started({ call: made }) {
    card(made.id, made.name, made.arguments).state("running");
  },
  tool_progress({ call_id, name, progress }) {
    const printed = progress?.stdout ?? progress?.stderr;
    if (printed) card(call_id, name).append(printed);
  },
  tool_ended({ result }) {
    card(result.call_id, result.name).end(result);
    answer = null;
  },
  interrupt_raised({ interrupt }) {
    card(interrupt.call_id, interrupt.tool_name, interrupt.arguments).state("waits for you");
    answer = null;
  },
  child({ call_id, event }) {
    if (event.type === "text") card(call_id, "reviewer").append(event.text);
  },
  stop_requested({ waiting_for }) {
    if (run) show({ ...run, state: "stopping", waiting_for });
  },
  run_ended() { answer = null; },
};

const textOf = (content) => content.map((part) => part.text ?? `[${part.type}]`).join("\n");

function add(tag, name, text) {
  const element = document.createElement(tag);
  element.className = name;
  element.textContent = text;
  $("#task").append(element);
  return element;
}

const OUTCOMES = {
  completed: "done", never_started: "not run", cancelled: "stopped", killed: "stopped",
  abandoned: "given up, may still run", unknown: "not known whether it ran",
};

/** The card of one call; it is made when the call is first seen. */
function card(id, name, given) {
  let known = cards.get(id);
  if (!known) {
    const element = copy("call");
    $("strong", element).textContent = name.replaceAll("_", " ");
    $("#task").append(element);
    known = makeCard(element);
    cards.set(id, known);
  }
  if (given) {
    known.about = given.path ?? given.command ?? given.prompt ?? "";
    $("code", known.element).textContent = known.about;
  }
  return known;
}

function makeCard(element) {
  const details = $("details", element);
  const shown = $("pre", details);
  return {
    element,
    about: "",
    state(text, isBad = false) {
      $(".state", element).textContent = text;
      $(".state", element).classList.toggle("bad", isBad);
    },
    append(text) {
      details.hidden = false;
      shown.textContent = (shown.textContent + text).slice(-LONGEST);
    },
    end(result) {
      const text = textOf(result.content);
      const isDiff = DIFF.test(text);
      this.state(result.is_error && result.outcome === "completed" ? "failed" : OUTCOMES[result.outcome], result.is_error);
      details.hidden = !text;
      details.open = isDiff || result.is_error;
      $("summary", details).textContent = isDiff ? "What it changed" : `Result (${(result.full_length ?? text.length).toLocaleString("en")} characters)`;
      shown.replaceChildren(...lines(text));
    },
  };
}

/** Lines of a text, coloured if it is a diff, and without the middle of a long one. */
function lines(text) {
  const half = LONGEST / 2;
  const short = text.length > LONGEST ? `${text.slice(0, half)}\n… ${(text.length - LONGEST).toLocaleString("en")} characters are not shown …\n${text.slice(-half)}` : text;
  if (!DIFF.test(short)) return [short];
  return short.trimEnd().split("\n").map((line) => {
    const element = document.createElement("span");
    element.textContent = line;
    if (/^\+(?!\+\+ )/.test(line)) element.className = "added";
    if (/^-(?!-- )/.test(line)) element.className = "removed";
    return element;
  });
}

// --- Approvals ------------------------------------------------------------------------------------------------------

const QUESTIONS = {
  edit_file: "May it change this file?", write_file: "May it write this file?", shell: "May it run this command?",
  start_process: "May it start this program?", write_process: "May it send this to the program?",
};

function showApprovals(asked) {
  const ids = new Set(asked.map((each) => each.id));
  for (const box of document.querySelectorAll(".approval")) if (!ids.has(box.dataset.id)) box.remove();
  for (const each of asked) {
    if ($(`.approval[data-id="${CSS.escape(each.id)}"]`)) continue;
    $(".approvals", card(each.call_id, each.tool_name, each.arguments).element).append(approval(each));
  }
}

function approval(asked) {
  const box = copy("approval");
  const editor = $(".editor", box);
  box.dataset.id = asked.id;
  $("h2", box).textContent = asked.kind === "limit" ? `${asked.reason.message} Go on?` : QUESTIONS[asked.tool_name] ?? `May it use ${asked.tool_name}?`;
  $("pre", box).replaceChildren(...lines(asked.preview ?? JSON.stringify(asked.arguments, null, 2)));
  $("textarea", editor).value = JSON.stringify(asked.arguments, null, 2);
  box.addEventListener("click", ({ target }) => {
    const chosen = target.dataset?.answer;
    if (chosen === "edit") {
      editor.hidden = !editor.hidden;
      target.setAttribute("aria-expanded", String(!editor.hidden));
      box.scrollIntoView({ block: "end" });
    } else if (chosen) {
      guarded(() => send(box, asked.id, answerFor(chosen, editor)), $("[role=alert]", box));
    }
  });
  return box;
}

function answerFor(chosen, editor) {
  if (chosen === "deny") return { type: "deny" };
  if (chosen === "approve") return { type: "approve" };
  try {
    return { type: "approve", arguments: JSON.parse($("textarea", editor).value) };
  } catch {
    throw new Error("This is not JSON. Check the quotes and commas.");
  }
}

async function send(box, id, given) {
  const buttons = box.querySelectorAll("button");
  for (const button of buttons) button.disabled = true;
  try {
    const next = (await call(`runs/${run.id}/resume`, { answers: [{ id, answer: given }] })).run;
    if (next.id === run.id) show(next);
    else await follow(next);
  } catch (error) {
    for (const button of buttons) button.disabled = false;
    if (error.status === 409) refresh(run.id); // it was answered in another window, or withdrawn
    throw error;
  }
}

// --- Stopping, and taking back ----------------------------------------------------------------------------------------

async function stop(undo) {
  const { id } = run;
  isBusy = undo;
  show(run);
  if (undo) say("Taking it all back …");
  try {
    const body = { reason: undo ? "take it all back" : "the Stop button", undo };
    const ended = await call(`runs/${id}/cancel?wait=${undo ? 60 : 0}`, body);
    if (undo && !ended.accepted) await call(`runs/${id}/undo`, {}); // it had ended before
  } finally {
    isBusy = false;
    await refresh(id);
  }
}

// --- The receipt, in plain words --------------------------------------------------------------------------------------

function showReceipt(view, receipt) {
  const undone = receipt.undo.filter((each) => each.outcome === "undone");
  const left = receipt.undo.filter((each) => each.outcome !== "undone");
  const rest = receipt.still_running.length ? `Still running: ${receipt.still_running.join(", ")}.` : "Nothing is left running.";
  $("#receipt h2").textContent = `${headline(view, receipt, undone, left)} ${rest}`;
  const told = receipt.undo.map((each) => [undoLine(each), each.outcome !== "undone"]);
  for (const each of receipt.calls) {
    const isTold = receipt.undo.some((other) => other.call_id === each.call_id);
    if (each.outcome !== "completed" && !isTold) told.push([`${label(each)}: ${OUTCOMES[each.outcome]}.`, true]);
  }
  if (receipt.saved === false) told.push([`Not saved: ${receipt.unsaved}`, true]);
  $("#receipt ul").replaceChildren(...told.map(([text, isBad]) => {
    const item = document.createElement("li");
    item.textContent = text;
    item.classList.toggle("bad", isBad);
    return item;
  }));
  $("#receipt .small").textContent = sums(receipt);
}

function headline(view, receipt, undone, left) {
  if (receipt.undo.length) {
    const all = `${undone.length} of ${receipt.undo.length} changes taken back.`;
    return left.length ? `${all} ${left.length} could not be.` : all;
  }
  if (view.state === "crashed") return "The server stopped in the middle. The work up to there is kept.";
  if (receipt.stop_reason === "end_turn") return "Finished.";
  if (receipt.stop_reason === "cancelled" || receipt.cause) return receipt.cause?.source === "shutdown" ? "Stopped by a restart of the server." : "Stopped.";
  return view.error ? `It failed: ${view.error}` : `Ended: ${receipt.stop_reason.replaceAll("_", " ")}.`;
}

const UNDONE = { undone: "taken back", failed: "left as it is", not_undone: "not taken back", unknown: "not known whether it was taken back" };

const label = ({ call_id, name }) => [name.replaceAll("_", " "), cards.get(call_id)?.about].filter(Boolean).join(" ");
const undoLine = (each) => `${label(each)}: ${UNDONE[each.outcome]}${each.detail ? ` (${each.detail.replace(/\.$/, "")})` : ""}.`;

function sums({ task, usage }) {
  const tokens = (task?.usage ?? usage).tokens;
  const parts = task ? [`${task.used.turns} turns`, `${task.used.tool_calls} tool calls`, `${task.seconds.toFixed(1)} s of work`] : [];
  return [...parts, `about ${(tokens.input.value ?? 0).toLocaleString("en")} tokens in, ${(tokens.output.value ?? 0).toLocaleString("en")} out`].join(" · ");
}

// --- Beginning --------------------------------------------------------------------------------------------------------

async function signIn(name) {
  user = name;
  document.cookie = `user=${encodeURIComponent(name)}; path=/; SameSite=Strict; max-age=31536000`;
  try {
    await load();
  } catch (error) {
    user = "";
    clear();
    show(null);
    throw error.status === 401 ? new Error(`There is no user ${name}.`) : error;
  }
}

$("#login").addEventListener("submit", (event) => {
  event.preventDefault();
  guarded(() => signIn($("#user").value.trim()));
});
$("#ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if ($("#send").disabled) return; // the Enter key does not ask
  guarded(async () => {
    const next = (await call("runs", { prompt: $("#prompt").value, session: SESSION })).run;
    $("#prompt").value = "";
    clear();
    await follow(next);
  });
});
$("#prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey) {
    event.preventDefault();
    $("#ask").requestSubmit();
  }
});
$("#stop").addEventListener("click", () => guarded(() => stop(false)));
$("#take-back").addEventListener("click", () => guarded(() => stop(true)));

const known = document.cookie.match(/(?:^|; )user=([^;]*)/);
show(null);
if (known) {
  $("#user").value = decodeURIComponent(known[1]);
  guarded(() => signIn($("#user").value));
}
