// Source: its threads and the watermark, its tables and copies, its position, and the operator actions.

import { at, get, post, put, remove } from "./api.js";
import { ask, h, show, toast } from "./dom.js";
import { count, date, errorNote, major, pill, seconds, short } from "./format.js";
import { lanes } from "./lanes.js";

const REASON = { name: "reason", label: "Reason (recorded)" };
const ACTIONS = {
  pause: { title: "Pause", text: "Its log is no longer read. Its group waits for it.", send: put },
  resume: { title: "Resume", text: "It continues to read its log. Also use this after an error was fixed.", send: put },
  restart: { title: "Restart", text: "Its session starts again from the position in Kafka. No change is lost or duplicated.", send: post },
  stop: { title: "Stop", text: "Its extractor stops after the current batch.", send: put, danger: true },
};

export function sourceView(root, [name], state) {
  const loaded = { tables: null, copies: null, positions: null, problem: null };
  let isLeft = false;

  /** Separate requests, so that a slow database does not delay the others. */
  function load() {
    const take = (what, isTold) => get(at("sources", name, what)).then(
      (found) => { loaded[what] = found; if (isTold) loaded.problem = null; },
      (problem) => { if (isTold) loaded.problem = problem; })
      .then(() => { if (!isLeft) view.draw(); });
    take("copies");
    take("positions");
    take("tables", true);
  }

  async function act(what) {
    const action = ACTIONS[what];
    const given = await ask({ title: `${action.title} ${name}?`, text: action.text, fields: [REASON], action: action.title, danger: action.danger });
    if (given) await say(`${action.title}: accepted`, () => action.send(at("sources", name, what), { reason: given.reason }));
  }

  async function say(done, send, isGone = false) {
    try {
      await send();
      toast(done);
      if (!isGone) load();
    } catch (problem) {
      toast(`${problem.message} ${problem.hint}`, true);
    }
  }

  const thread = async (number, what) => {
    const text = what === "exclude" ? "The group no longer waits for this thread. If it later commits below the released order, that commit is late and stops the source." : "The group waits for this thread again.";
    const given = await ask({ title: `${what === "exclude" ? "Exclude" : "Include"} thread ${number}?`, text, action: what, danger: what === "exclude",
      fields: [{ ...REASON, required: true }] });
    if (given) await say(`Thread ${number}: ${what}d`, () => post(at("sources", name, "threads", number, what), { reason: given.reason }));
  };

  async function drop() {
    const given = await ask({ title: `Remove ${name}?`, text: "It leaves its group. Its topics are retained: if it is added again, it continues where it was.", fields: [REASON], action: "Remove", danger: true });
    if (!given) return;
    await say(`${name} was removed`, () => remove(`${at("sources", name)}?reason=${encodeURIComponent(given.reason)}`), true);
    location.hash = "#/";
  }

  async function reset() {
    try {
      const { effects } = await remove(`${at("sources", name, "positions")}?dry_run=true`);
      const given = await ask({ title: `Delete the position of ${name}?`, danger: true, action: "Delete",
        text: h("ul", {}, effects.map((effect) => h("li", {}, effect))) });
      if (given) await say("Position deleted. Capture starts from scratch at the next start", () => remove(at("sources", name, "positions")));
    } catch (problem) {
      toast(`${problem.message} ${problem.hint}`, true);
    }
  }

  const copy = async (table) => {
    const given = await ask({ title: `Copy ${table} again?`, text: "Changes are captured meanwhile. The new copy replaces the old one once it is complete.", fields: [REASON], action: "Copy" });
    if (given) await say(`${table} will be copied`, () => post(at("sources", name, "copies"), { table, reason: given.reason }));
  };
  const cancel = (table) => say(`The copy of ${table} was cancelled`, () => remove(at("sources", name, "copies", table)));

  const view = {
    leave() { isLeft = true; },
    draw() {
      const source = state.overview?.sources[name];
      if (!source) {
        return show(root, h("p", { class: "quiet pad" }, state.overview ? `There is no source ${name}. ` : "Waiting for the fleet status …",
          state.overview && h("a", { href: "#/" }, "Fleet")));
      }
      show(root, head(source, act, drop), errorNote(source.error), figures(source),
        lanes(source, state.history, thread),
        tables(loaded, source, copy, cancel), position(loaded.positions, source, reset));
    },
  };
  load();
  return view;
}

function head(source, act, drop) {
  const button = (what, isOff) => h("button", { type: "button", onclick: () => act(what), disabled: isOff, "data-action": what }, ACTIONS[what].title);
  return h("div", { class: "head" },
    h("div", { class: "grow" }, h("div", { class: "row" }, h("h1", {}, source.name), pill(source.state)),
      h("p", { class: "quiet" }, `${source.kind}${source.group ? ` · group ${source.group}` : " · no group"}`,
        source.wanted !== source.state && ` · desired: ${source.wanted}`, source.reason && ` · “${source.reason}”`)),
    h("div", { class: "row" }, source.wanted === "running" ? button("pause") : button("resume"),
      source.wanted === "running" && source.error && button("resume"),
      button("restart"), button("stop", source.wanted === "stopped"),
      h("button", { type: "button", class: "danger", onclick: drop, "data-action": "remove" }, "Remove")));
}

function figures(source) {
  const one = (name, value) => h("div", {}, h("dt", {}, name), h("dd", { class: "num" }, value));
  return h("dl", { class: "figures card" },
    one("transactions", `${short(source.per_second)}/s`), one("published in this session", count(source.transactions)),
    one("changes", count(source.changes)), one("waiting at the merger", count(source.waiting)),
    one("last status", source.heard_seconds_ago === null ? "never" : `${seconds(source.heard_seconds_ago)} ago`));
}

function tables(loaded, source, copy, cancel) {
  const copies = Object.fromEntries((loaded.copies || []).map((c) => [c.table, c]));
  const names = (loaded.tables || []).map((t) => t.table);
  const rows = [...(loaded.tables || []), ...Object.keys(copies).filter((t) => !names.includes(t)).map((table) => ({ table, key: [], columns: [] }))];
  return h("section", { class: "card" }, h("h2", {}, "Tables"),
    loaded.problem && errorNote({ what: loaded.problem.message, hint: loaded.problem.hint }),
    !loaded.tables && !loaded.problem && h("p", { class: "quiet" }, "Reading the tables from the database …"),
    rows.length > 0 && h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, ["table", "key", "columns", "copy", ""].map((t) => h("th", { class: t === "columns" ? "num" : null }, t)))),
      h("tbody", {}, rows.map((t) => tableRow(t, copies[t.table], copy, cancel))))));
}

function tableRow(table, copied, copy, cancel) {
  const isOpen = copied && ["requested", "planned", "copying"].includes(copied.state);
  return h("tr", {}, h("td", { class: "mono" }, table.table), h("td", { class: "mono" }, table.key.join(", ") || "—"),
    h("td", { class: "num" }, table.columns.length || ""),
    h("td", {}, copied ? [pill(copied.state), isOpen && copied.chunks > 0 && progress(copied)] : h("span", { class: "faint" }, "from the log")),
    h("td", { class: "num" }, isOpen
      ? h("button", { type: "button", class: "small", onclick: () => cancel(table.table) }, "Cancel")
      : table.can_copy && h("button", { type: "button", class: "small", onclick: () => copy(table.table) }, "Copy")));
}

function progress(copied) {
  return h("div", { class: "faint" }, h("div", { class: "meter" }, h("span", { style: `width:${(100 * (copied.chunks_done || 0)) / copied.chunks}%` })),
    `${copied.chunks_done || 0} of ${copied.chunks} chunks`, copied.seconds_left !== null && `, ${seconds(copied.seconds_left)} left`, copied.waiting && `: ${copied.waiting}`);
}

function position(found, source, reset) {
  if (!found?.threads.length) return null;
  const isStopped = source.wanted === "stopped";
  return h("section", { class: "card" },
    h("div", { class: "head" }, h("h2", { class: "grow" }, "Position in Kafka"),
      h("button", { type: "button", class: "danger small", disabled: !isStopped, title: isStopped ? "" : "Stop the source first", onclick: reset, "data-action": "reset" }, "Delete …")),
    h("p", { class: "faint" }, `epoch ${found.epoch} · ${found.incarnation} · clock ${date(found.clock_us)}`),
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, ["thread", "state", "published", "mark", "behind highest mark"].map((t) => h("th", { class: t.startsWith("behind") ? "num" : null }, t)))),
      h("tbody", {}, found.threads.map((t) => h("tr", {}, h("td", {}, t.thread), h("td", {}, t.state), h("td", { class: "mono" }, t.published),
        h("td", { class: "mono" }, t.mark), h("td", { class: "num" }, behind(found.threads, t))))))));
}

function behind(threads, thread) {
  const highest = threads.map((t) => major(t.mark)).reduce((a, b) => (a > b ? a : b));
  return count(Number(highest - major(thread.mark)));
}
