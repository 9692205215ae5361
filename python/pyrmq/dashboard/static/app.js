// The frame of the page: which section is shown, when it is asked again, and what is said when that fails.

import { get, hasToken, post, setToken, takeToken } from "./api.js";
import { h, link } from "./dom.js";
import { deadLetters, message, messages } from "./messages.js";
import { group, groups, options, overview, topic, topics } from "./views.js";

const SECTIONS = [
  ["", "Overview", "o", overview], ["topics", "Topics", "t", topics], ["groups", "Groups", "c", groups],
  ["messages", "Messages", "m", messages], ["dead-letters", "Dead letters", "d", deadLetters],
  ["options", "Options", "s", options],
];
const VIEWS = { ...Object.fromEntries(SECTIONS.map(([name, , , view]) => [name, view])), topic, group, message };
const REFRESH_MS = 2500;
const RETRY_MS = 2000;

const main = document.getElementById("main");
const problem = document.getElementById("problem");
const said = document.getElementById("said");
const pulse = document.getElementById("pulse");
const [title, fixed, live] = [h("h1", { tabindex: -1 }), h("div", {}), h("div", { id: "live" })];

const app = {
  query: {}, mayWrite: false, chosen: new Set(),
  go(route, query) { location.hash = link(route, query); },
  // Another query for the same section: the form stays, only what is below it is loaded again.
  change(query) {
    Object.assign(app.query, query);
    for (const name of Object.keys(app.query)) if (app.query[name] === "") delete app.query[name];
    history.replaceState(null, "", link(route, app.query));
    app.refresh();
  },
  refresh() { load(); },
  say(text, isBad = false) {
    said.textContent = text;
    said.className = isBad ? "said bad shown" : "said shown";
    clearTimeout(app.silence);
    app.silence = setTimeout(() => { said.className = "said"; }, isBad ? 12_000 : 5000);
  },
  // Send a change; `done` is said when it worked. Gives the answer, or null.
  async write(name, tree, done) {
    try {
      if (!hasToken() && !askToken()) return null;
      const answer = await post(name, tree);
      if (done) app.say(done);
      app.refresh();
      return answer;
    } catch (error) {
      if (error.status === 401) sessionStorage.clear();
      app.say(error.message, true);
      return null;
    }
  },
  about(tree) {
    document.getElementById("cluster").textContent = tree.name_server;
    document.getElementById("version").textContent = `pyrmq ${tree.version}`;
    const mode = document.getElementById("mode");
    mode.textContent = tree.write ? "can change" : "read-only";
    mode.hidden = false;
    if (app.mayWrite !== tree.write) {
      app.mayWrite = tree.write;
      fill();
    }
  },
};

function askToken() {
  const token = prompt("The token that `pyrmq dashboard` printed at its start");
  if (token) setToken(token);
  return Boolean(token);
}

let [route, view, timer, loading] = ["", overview, 0, null];

function parse() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return [path, Object.fromEntries(new URLSearchParams(query ?? ""))];
}

function fill() {
  fixed.replaceChildren(...[view.fixed?.(app)].flat().filter(Boolean));
}

function show() {
  if (location.hash === "#main") return;
  const before = route;
  const [path, query] = parse();
  route = path in VIEWS ? path : "";
  view = VIEWS[route];
  app.query = query;
  app.chosen.clear();
  const name = typeof view.title === "function" ? view.title(app) : view.title;
  title.textContent = name;
  document.title = `${name} · pyrmq`;
  const section = view.parent ?? route;
  for (const anchor of document.querySelectorAll("#nav a")) {
    const isHere = anchor.dataset.section === section;
    if (isHere) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  fill();
  live.replaceChildren(h("p", { class: "empty loading" }, "Loading…"));
  if (before !== route) scrollTo(0, 0);
  load();
}

async function load() {
  clearTimeout(timer);
  loading?.abort();
  const mine = loading = new AbortController();
  let wait = view.every ?? REFRESH_MS;
  try {
    // A connection that hangs must not end the page's refreshes.
    const limit = AbortSignal.any([mine.signal, AbortSignal.timeout(30_000)]);
    const content = await view.load(app, limit);
    if (mine.signal.aborted) return;
    replace([content].flat(3).filter(Boolean));
    problem.hidden = true;
    mark("good", "connected");
  } catch (error) {
    if (mine.signal.aborted) return;
    wait = failed(error) ? RETRY_MS : 0;
  }
  live.setAttribute("aria-busy", "false");
  if (wait) timer = setTimeout(tick, wait);
}

// Says what went wrong. True if the next try may go better.
function failed(error) {
  if (error.status === 401 && !app.asked) {
    app.asked = true;
    if (askToken()) return true;
  }
  const isAway = error.status === 0 || error.status === 503 || error.status === undefined;
  const text = error.name === "TimeoutError" ? "No answer within 30 s." : error.message;
  problem.replaceChildren(h("b", {}, isAway ? "No answer from the cluster. " : "This cannot be shown. "), text,
    isAway ? h("span", { class: "quiet" }, " Trying again every 2 s.") : null);
  problem.hidden = false;
  mark("bad", "not connected");
  const first = live.querySelector(".loading");
  if (first) first.remove();
  return isAway;
}

function mark(kind, text) {
  pulse.className = `dot ${kind}`;
  pulse.setAttribute("aria-label", text);
  pulse.title = text;
}

function tick() {
  const selection = document.getSelection();
  const isReading = selection.type === "Range" && live.contains(selection.anchorNode);
  // Nobody looks, or somebody copies something: what is there stays.
  if (document.hidden || isReading) timer = setTimeout(tick, 1000);
  else load();
}

// New content; what has the focus and how far tables were scrolled stay.
function replace(nodes) {
  const key = live.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const scrolled = [...live.querySelectorAll(".table, pre")].map((node) => node.scrollLeft);
  live.replaceChildren(...nodes);
  [...live.querySelectorAll(".table, pre")].forEach((node, at) => { node.scrollLeft = scrolled[at] ?? 0; });
  if (key !== undefined) live.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

function theme(kind) {
  if (kind) document.documentElement.dataset.theme = kind;
}

let waits = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  if (event.key === "/") {
    const field = document.querySelector("[data-search]");
    if (field) {
      event.preventDefault();
      field.focus();
      field.select();
    }
  } else if (waits) {
    waits = false;
    const section = SECTIONS.find(([, , letter]) => letter === event.key);
    if (section) app.go(section[0]);
  } else if (event.key === "g") {
    waits = true;
    setTimeout(() => { waits = false; }, 1500);
  } else if (["ArrowDown", "ArrowUp"].includes(event.key) && event.target.closest?.("tbody")) {
    const links = [...live.querySelectorAll("tbody tr")].map((row) => row.querySelector("a, button")).filter(Boolean);
    const at = links.findIndex((node) => node.closest("tr") === event.target.closest("tr"));
    const next = links[at + (event.key === "ArrowDown" ? 1 : -1)];
    if (next) {
      event.preventDefault();
      next.focus();
    }
  }
});
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
document.getElementById("theme").addEventListener("click", () => {
  const isDark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  theme(isDark ? "light" : "dark");
  localStorage.setItem("pyrmq-theme", isDark ? "light" : "dark");
});

takeToken();
theme(localStorage.getItem("pyrmq-theme"));
document.getElementById("nav").append(...SECTIONS.map(([name, text]) =>
  h("a", { href: link(name), data: { section: name } }, text)));
main.append(h("div", { class: "top" }, title, fixed), live);
addEventListener("hashchange", show);
document.addEventListener("visibilitychange", () => { if (!document.hidden && view.every !== 0) load(); });
show();
// The head of the page names the cluster whatever section came first.
if (parse()[0] !== "") get("overview").then(app.about, () => {});
