// The page: routes, live status, shared state of the views.

import { follow } from "./api.js";
import { ask, h, show } from "./dom.js";
import { addView } from "./add.js";
import { fleetView } from "./fleet.js";
import { lakeView } from "./lake.js";
import { sourceView } from "./source.js";
import { transactionsView } from "./transactions.js";

const PAGES = [
  ["", "Fleet", "f"], ["transactions", "Transactions", "t"], ["lake", "Lake", "l"], ["add", "Add a source", "a"],
];
const VIEWS = { "": fleetView, sources: sourceView, transactions: transactionsView, lake: lakeView, add: addView };

const main = document.getElementById("main");
const live = document.getElementById("live");

/** Shared by the views: the last fleet status, and a short history of it for charts. */
export const state = { overview: null, history: [] };
let view = null;

function route() {
  const [page, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  view?.leave?.();
  show(document.getElementById("nav"), PAGES.map(([path, title]) => h("a", {
    href: `#/${path}`, "aria-current": path === page || (path === "" && page === "sources") ? "page" : null }, title)));
  main.replaceChildren();
  view = (VIEWS[page] || fleetView)(main, rest, state);
  document.title = `${PAGES.find(([path]) => path === page)?.[1] || rest[0] || "Fleet"} · lowwater`;
  view.draw();
}

function onEvent(name, data) {
  if (name === "problem") return setLive("off", data.detail);
  setLive("on");
  state.overview = data;
  state.history.push(data);
  if (state.history.length > 45) state.history.shift();
  view?.draw();
}

function setLive(name, why = "") {
  live.className = `live ${name}`;
  live.textContent = { on: "live", wait: "connecting", off: "not connected" }[name];
  live.title = why;
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  localStorage.setItem("lowwater.theme", theme || "");
}

document.getElementById("theme").onclick = () => {
  const isDark = (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  setTheme(isDark ? "light" : "dark");
  view?.draw();
};

function help() {
  ask({ title: "Keyboard", action: "Close", text: h("dl", { class: "keys" },
    PAGES.map(([, title, letter]) => [h("dt", {}, h("kbd", {}, "g"), " ", h("kbd", {}, letter)), h("dd", {}, title)]),
    h("dt", {}, h("kbd", {}, "?")), h("dd", {}, "this help")) });
}
document.getElementById("help").onclick = help;

let isGoing = false;
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "?") help();
  const page = isGoing && PAGES.find(([, , letter]) => letter === event.key);
  isGoing = event.key === "g";
  if (page) { location.hash = `#/${page[0]}`; main.focus(); }
});

setTheme(localStorage.getItem("lowwater.theme"));
addEventListener("hashchange", route);
addEventListener("resize", () => view?.draw());
route();
follow("/v1/events", { onEvent, onState: (name) => setLive(name) });
