// The frame of the console: the current page, the connection status, and the dialog for the API key.

import { onKeyNeeded, useKey } from "./api.js";
import { say, show } from "./dom.js";
import { runPage } from "./run.js";
import { runsPage } from "./runs.js";
import { usagePage } from "./usage.js";

const main = document.getElementById("main");
const line = document.getElementById("connection");
let leave = () => {};
let arriving = {};

const shell = {
  /** Show that the connection is lost; null when it is there. */
  connection(text, tone = "warn") {
    line.dataset.tone = tone;
    say(line, text ?? "");
    show(line, Boolean(text));
  },

  /** Show a message once; screen readers announce it. */
  announce(text) {
    this.connection(text, "info");
    setTimeout(() => this.connection(null), 4000);
  },

  /** Go to another page. `stopAtOnce` stops its run as soon as it is shown: Stop was pressed before the run had an id. */
  go(hash, given = {}) {
    arriving = given;
    location.hash = hash;
  },
};

function route() {
  const [, page = "", id = ""] = location.hash.split("/");
  leave();
  shell.connection(null);
  main.replaceChildren();
  scrollTo(0, 0);
  mark(page === "usage" ? "usage" : "runs");
  if (page === "usage") leave = usagePage(main, shell);
  else if (page === "runs" && id) leave = runPage(main, decode(id), shell, arriving);
  else leave = runsPage(main, shell);
  arriving = {};
  if (document.activeElement === document.body || !document.activeElement?.isConnected) main.focus({ preventScroll: true });
}

function decode(id) {
  try {
    return decodeURIComponent(id);
  } catch {
    return id;
  }
}

function mark(current) {
  for (const link of document.querySelectorAll("[data-nav]")) {
    if (link.dataset.nav === current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

// --- The key ---------------------------------------------------------------------------------------------------------

let asking = null;

onKeyNeeded((problem) => {
  asking ??= askForKey(problem).finally(() => {
    asking = null;
  });
  return asking;
});

function askForKey(problem) {
  const dialog = document.getElementById("key-dialog");
  const input = document.getElementById("key-input");
  const error = document.getElementById("key-error");
  say(error, problem);
  show(error, Boolean(problem));
  input.value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("cancel", (event) => event.preventDefault(), { once: true });
    document.getElementById("key-form").addEventListener(
      "submit",
      () => {
        useKey(input.value.trim());
        input.value = "";
        resolve();
      },
      { once: true },
    );
  });
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", route);
route();
