import { el, setText } from "./dom.js";
import { clock, span } from "./format.js";
import * as cluster from "./cluster.js";
import * as group from "./group.js";
import * as groups from "./groups.js";
import * as topic from "./topic.js";
import * as topics from "./topics.js";

// A view is a module with `tab`, `title(name)`, `url(name, state)` and `mount(main, name, again)`, which returns
// `update(data)`, and `draw()` where the view has canvases that a new theme or size changes.
const VIEWS = { groups, group, topics, topic, cluster };
const MISSING = 404;
const UNCHANGED = 304;
const UNAUTHORIZED = 401;

const main = document.getElementById("main");
const banner = document.getElementById("banner");
const live = document.getElementById("live");
const age = document.getElementById("age");
let interval = 5;
let current = null;
let timer = 0;
let readAt = null;
let failed = "";

function route() {
  const [, name = "groups", ...rest] = location.hash.split("/");
  const view = VIEWS[name] ? name : "groups";
  const about = decoded(rest.join("/"));
  const shown = VIEWS[view];
  main.replaceChildren();
  const state = {};
  current = { view: shown, name: about, state, tag: null, mounted: null };
  current.mounted = shown.mount(main, about, state, refreshSoon);
  document.title = `${shown.title(about)} · streamgroup`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === shown.tab) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  window.scrollTo(0, 0);
  refreshSoon();
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand
  }
}

function refreshSoon() {
  if (current) current.tag = null;
  clearTimeout(timer);
  timer = setTimeout(refresh, 0);
}

async function refresh() {
  clearTimeout(timer);
  const asked = current;
  try {
    const headers = asked.tag ? { "If-None-Match": asked.tag } : {};
    const answer = await fetch(asked.view.url(asked.name, asked.state), { headers, cache: "no-store" });
    if (answer.status === UNAUTHORIZED) location.href = "/login";
    if (answer.status === MISSING) {
      if (asked === current) showMissing(asked);
    } else if (answer.status !== UNCHANGED) {
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const data = await answer.json();
      if (asked !== current) return;
      if (asked.isMissing) { // it exists now
        route();
        return;
      }
      asked.tag = answer.headers.get("ETag");
      [readAt, failed] = [data.at, data.failed];
      asked.mounted.update(data);
    }
    showState("");
  } catch (error) {
    showState(`The server of this page does not answer (${error.message}). Is streamgroup ui still running?`);
  }
  if (asked === current && !document.hidden) {
    timer = setTimeout(refresh, Math.min(Math.max(interval * 500, 500), 5000));
  }
}

function showMissing(asked) {
  asked.tag = null;
  asked.isMissing = true;
  const what = asked.view.tab === "topics" ? "topic" : "group";
  main.replaceChildren(
    el("div", { class: "card empty" }, el("b", {}, `No ${what} ${asked.name}`), "It does not exist, or not any more."),
  );
  asked.mounted = null;
}

function showState(lost) {
  const text = lost || (failed ? `The cluster cannot be read: ${failed}` : "");
  banner.hidden = !text;
  setText(banner, text && readAt && !lost ? `${text} The figures are those of ${clock(readAt)}.` : text);
  live.className = `live ${text ? "bad" : readAt ? "ok" : ""}`;
  showAge();
}

function showAge() {
  if (!readAt) setText(age, failed ? "not connected" : "reading the cluster");
  else setText(age, `read ${span(Math.max(0, Date.now() / 1000 - readAt))} ago`);
}

// -- theme, size, keys --

const redraw = () => current?.mounted?.draw?.();

function changeTheme() {
  const theme = window.nextTheme();
  document.getElementById("theme").title = `Theme: ${theme} (key: d)`;
  redraw();
}

function moveRow(step) {
  const links = [...main.querySelectorAll("tbody tr:not([hidden]) td.name a")];
  if (!links.length) return;
  const now = links.indexOf(document.activeElement);
  links[Math.min(Math.max(now + step, 0), links.length - 1)].focus();
}

const KEYS = {
  1: () => { location.hash = "#/groups"; },
  2: () => { location.hash = "#/topics"; },
  3: () => { location.hash = "#/cluster"; },
  "/": () => main.querySelector("input")?.focus(),
  j: () => moveRow(1),
  k: () => moveRow(-1),
  d: changeTheme,
  "?": () => document.getElementById("help").showModal(),
  Escape: () => { if (current.name) location.hash = `#/${current.view.tab}`; },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("help").open) return;
  if (event.target.matches("input")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const does = KEYS[event.key];
  if (does) {
    event.preventDefault();
    does();
  }
});
document.getElementById("theme").addEventListener("click", changeTheme);
document.getElementById("keys").addEventListener("click", KEYS["?"]);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash names the view
  main.focus();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
window.addEventListener("hashchange", route);
setInterval(showAge, 1000);

try {
  const settings = await (await fetch("/api/settings")).json();
  interval = settings.interval_s ?? interval;
} catch { /* the first refresh says what is wrong */ }
route();
