// Lake: tables with their sizes, the newest rows of a table, and the landings.

import { at, get } from "./api.js";
import { h, show } from "./dom.js";
import { bytes, count, date, errorNote, pill } from "./format.js";
import { chosen, tabs } from "./pick.js";

const HIDDEN = new Set(["_seq", "_txid", "_thread", "_order", "_ts", "_unchanged", "_before"]);

export function lakeView(root, rest, state) {
  let tables = null;
  let landings = null;
  let next = null;
  let problem = null;
  let seen = -1;
  let rows = null;
  let isBusy = false;
  let isLeft = false;

  async function load(name, n) {
    if (isBusy) return;
    isBusy = true;
    try {
      const [found, page] = await Promise.all([get(at("groups", name, "lake", "tables")), get(`${at("groups", name, "landings")}?limit=10`)]);
      tables = found;
      // older pages that the user has loaded are retained
      const older = (landings || []).filter((l) => l.n < Math.min(...page.landings.map((p) => p.n)));
      landings = [...page.landings, ...older];
      if (!older.length) next = page.next;
      [problem, seen] = [null, n];
    } catch (found) {
      [problem, seen] = [found, n];
    }
    setTimeout(() => { isBusy = false; }, 2000);
    if (!isLeft) view.draw();
  }

  async function older(name) {
    const page = await get(`${at("groups", name, "landings")}?limit=20&before=${next}`);
    landings.push(...page.landings);
    next = page.next;
    view.draw();
  }

  async function look(name, table) {
    rows = { table, found: null, problem: null };
    view.draw();
    try {
      rows.found = await get(`${at("groups", name, "lake", "tables", table, "rows")}?limit=12`);
    } catch (found) {
      rows.problem = found;
    }
    view.draw();
    document.getElementById("rows")?.scrollIntoView({ block: "nearest" });
  }

  const view = {
    leave() { isLeft = true; },
    draw() {
      if (!state.overview) return show(root, h("p", { class: "quiet pad" }, "Waiting for the fleet status …"));
      const { names, name } = chosen(state.overview, rest, (group) => group.landing);
      if (!name) return show(root, h("h1", {}, "Lake"), h("p", { class: "quiet" }, "No group has a lake: set its lake.uri."));
      const landing = state.overview.groups[name].landing;
      if (landing.n !== seen) load(name, landing.n);
      show(root,
        h("div", { class: "head" }, h("div", { class: "grow row" }, h("h1", {}, "Lake"), pill(landing.state)), tabs("lake", names, name),
          h("span", { class: "quiet" }, `gsn ${count(landing.gsn)}, ${count(landing.n)} landings`)),
        errorNote(landing.error), errorNote(problem && { what: problem.message, hint: problem.hint }),
        tableList(tables, rows, (table) => look(name, table)), newest(rows), ledger(landings, next, () => older(name)));
    },
  };
  return view;
}

function tableList(tables, rows, look) {
  const most = Math.max(1, ...(tables || []).map((t) => t.bytes));
  return h("section", { class: "card" }, h("h2", {}, "Tables"), !tables && h("p", { class: "quiet" }, "Reading the tables …"),
    tables && h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "table"), ["rows in files", "files", "size", "version", "last gsn"].map((t) => h("th", { class: "num" }, t)))),
      h("tbody", {}, tables.map((t) => h("tr", { class: "link", onclick: () => look(t.table), "data-key": t.table },
        h("td", {}, h("button", { type: "button", class: "plain mono", "aria-pressed": rows?.table === t.table ? "true" : "false" }, t.table),
          t.stale && h("div", { class: "stale" }, pill("stale"), h("span", { class: "faint" }, ` since gsn ${count(t.stale.gsn)}: ${t.stale.reason}`))),
        h("td", { class: "num" }, count(t.rows)), h("td", { class: "num" }, count(t.files)),
        h("td", { class: "num size" }, bytes(t.bytes), h("div", { class: "meter" }, h("span", { style: `width:${(100 * t.bytes) / most}%` }))),
        h("td", { class: "num" }, t.version), h("td", { class: "num" }, count(t.gsn))))))));
}

function newest(rows) {
  if (!rows) return null;
  const columns = rows.found?.columns.filter((c) => !HIDDEN.has(c)) || [];
  return h("section", { class: "card", id: "rows" }, h("h2", {}, "Newest rows of ", h("span", { class: "mono" }, rows.table)),
    errorNote(rows.problem && { what: rows.problem.message, hint: rows.problem.hint }),
    !rows.found && !rows.problem && h("p", { class: "quiet" }, "Reading …"),
    rows.found && h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, columns.map((c) => h("th", {}, c)))),
      h("tbody", {}, rows.found.rows.map((row) => h("tr", {}, columns.map((c) => h("td", { class: "mono" },
        c === "_op" ? h("span", { class: `op ${row[c]}` }, row[c]) : text(row[c])))))))));
}

function ledger(landings, next, older) {
  return h("section", { class: "card" }, h("h2", {}, "Landings"),
    landings && h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { class: "num" }, "n"), h("th", {}, "kind"), h("th", {}, "landed"), h("th", {}, "gsn"),
        ["transactions", "rows", "files", "size"].map((t) => h("th", { class: "num" }, t)), h("th", {}, "tables"))),
      h("tbody", {}, landings.map((l) => h("tr", { "data-key": `n-${l.n}` }, h("td", { class: "num" }, l.n), h("td", {}, l.kind), h("td", {}, date(l.at_us)),
        h("td", { class: "mono" }, l.kind === "land" && l.gsn > l.from_gsn ? `${l.from_gsn + 1} … ${l.gsn}` : ""),
        h("td", { class: "num" }, count(l.transactions)), h("td", { class: "num" }, count(l.rows)), h("td", { class: "num" }, l.files),
        h("td", { class: "num" }, bytes(l.bytes)), h("td", { class: "faint" }, l.tables.map((t) => t.replace(/^([^.]+)\..*\./, "$1.")).join(", "))))))),
    next && h("p", { style: "margin-top:.75rem" }, h("button", { type: "button", class: "small", onclick: older }, "Older")));
}

const text = (value) => (value === null ? "null" : typeof value === "object" ? JSON.stringify(value) : String(value));
