// The frame of the console: the current page, the connection status, and the dialog for the API key.

import { client, onKeyNeeded, useKey } from "./api.js";
import { h, say, show } from "./dom.js";
import { Feed } from "./feed.js";
import { Notifier } from "./notifications.js";
import { runPage } from "./run.js";
import { runsPage } from "./runs.js";
import { Sidebar } from "./sidebar.js";

const main = document.getElementById("main");
const line = document.getElementById("connection");
let leave = () => {};
let arriving = {};

const feed = new Feed();
const sidebar = new Sidebar(document.getElementById("sidebar"), feed);
const toggle = document.getElementById("sidebar-toggle");

const shell = {
  feed,

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

// Pages whose modules are loaded when they are needed.
const PAGES = { inbox: () => import("./inbox.js"), usage: () => import("./usage.js"), audit: () => import("./audit.js"), fleet: () => import("./fleet.js") };

function route() {
  const [, page = "", id = ""] = location.hash.split("/");
  leave();
  shell.connection(null);
  main.replaceChildren();
  feed.isAlone = page !== "runs" || !id;
  sidebar.show(page === "runs" ? decode(id) : "");
  openSidebar(false);
  scrollTo(0, 0);
  mark(PAGES[page] ? page : "runs");
  if (PAGES[page]) leave = later(PAGES[page]());
  else if (page === "runs" && id) leave = runPage(main, decode(id), shell, arriving);
  else leave = runsPage(main, shell);
  arriving = {};
  if (document.activeElement === document.body || !document.activeElement?.isConnected) main.focus({ preventScroll: true });
}

/** Show a page whose module is loaded when it is needed. */
function later(loading) {
  let isLeft = false;
  let leaveIt = () => {};
  loading.then((module) => {
    if (!isLeft) leaveIt = module.openPage(main, shell);
  });
  return () => {
    isLeft = true;
    leaveIt();
  };
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
    if (link.dataset.nav === current) {
      link.setAttribute("aria-current", "page");
      link.parentElement.scrollLeft = link.offsetLeft - link.parentElement.offsetLeft - 8; // on a phone the last ones may not fit
    } else link.removeAttribute("aria-current");
  }
}

// --- The key ---------------------------------------------------------------------------------------------------------

let asking = null;

onKeyNeeded((problem) => {
  if (asking && problem) showKeyProblem(problem); // another request, sent without a key, has asked already
  asking ??= askForKey(problem).finally(() => {
    asking = null;
  });
  return asking;
});

function showKeyProblem(problem) {
  const error = document.getElementById("key-error");
  say(error, problem);
  show(error, Boolean(problem));
}

function askForKey(problem) {
  const dialog = document.getElementById("key-dialog");
  const input = document.getElementById("key-input");
  showKeyProblem(problem);
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
// --- The sessions on a small screen ----------------------------------------------------------------------------------

function openSidebar(open) {
  document.body.classList.toggle("sidebar-open", open);
  toggle.setAttribute("aria-expanded", String(open));
}

toggle.addEventListener("click", () => openSidebar(!document.body.classList.contains("sidebar-open")));
document.getElementById("sidebar").addEventListener("click", (event) => event.target.closest("a") && openSidebar(false));

// --- What waits for a person -----------------------------------------------------------------------------------------

shell.notifier = new Notifier(feed, (hash) => shell.go(hash));
const badge = document.getElementById("inbox-count");

feed.listen(() => {
  const waiting = feed.waiting.reduce((sum, run) => sum + run.interrupts.length, 0);
  say(badge, waiting ? String(waiting) : "");
  badge.setAttribute("aria-label", `, ${waiting} waiting`);
  show(badge, waiting > 0);
});

addEventListener("hashchange", route);
route();
readFeed();
client.health().then(({ fleet }) => show(document.querySelector('[data-nav="fleet"]'), fleet)).catch(() => {}); // without a fleet, there is no page

async function readFeed() {
  try {
    await feed.read((problem) => feed.isAlone && shell.connection(problem ? "Connection lost. Trying again…" : null));
  } catch (error) {
    sidebar.element.append(h("p", { class: "problem" }, error.text ?? String(error)));
  }
}
