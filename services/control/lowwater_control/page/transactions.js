// Transactions: waiting transactions and the thread they wait for, the last released ones, and one in detail.

import { at, get } from "./api.js";
import { h, show } from "./dom.js";
import { clock, count, date, errorNote, seconds } from "./format.js";
import { chosen, tabs } from "./pick.js";

const OPS = { c: "insert", u: "update", d: "delete", r: "read", t: "truncate", copied: "copied" };

export function transactionsView(root, rest, state) {
  let heads = null;
  let problem = null;
  let seenGsn = -1;
  let opened = null;
  let isBusy = false;
  let isLeft = false;

  async function load(name, gsn) {
    if (isBusy) return;
    isBusy = true;
    try {
      heads = await get(`${at("groups", name, "transactions")}?limit=25`);
      [problem, seenGsn] = [null, gsn];
    } catch (found) {
      problem = found;
    }
    if (isLeft) return;
    // at most one update in two seconds, so that the list stays readable
    setTimeout(() => { isBusy = false; }, 2000);
    view.draw();
  }

  async function open(name, gsn) {
    if (opened?.gsn === gsn) { opened = null; return view.draw(); }
    opened = { gsn, found: null, problem: null };
    view.draw();
    try {
      opened.found = await get(at("groups", name, "transactions", gsn));
    } catch (found) {
      opened.problem = found;
    }
    view.draw();
  }

  const view = {
    leave() { isLeft = true; },
    draw() {
      if (!state.overview) return show(root, h("p", { class: "quiet pad" }, "Waiting for the fleet status …"));
      const { names, name } = chosen(state.overview, rest);
      if (!name) return show(root, h("h1", {}, "Transactions"), h("p", { class: "quiet" }, "There is no group yet."));
      const group = state.overview.groups[name];
      if ((heads === null && !problem) || (group.gsn !== seenGsn && !opened)) load(name, group.gsn);
      show(root, h("div", { class: "head" }, h("h1", { class: "grow" }, "Transactions"), tabs("transactions", names, name)),
        waiting(group, state.overview), errorNote(problem && { what: problem.message, hint: problem.hint }),
        released(heads, opened, (gsn) => open(name, gsn)));
    },
  };
  return view;
}

function waiting(group, overview) {
  const held = group.holder;
  return h("section", { class: "card" }, h("h2", {}, "Waiting"),
    held
      ? h("div", { class: "note warn" }, h("strong", {}, `${count(held.waiting)} transactions wait for ${held.source}’s thread ${held.thread ?? "?"}, for ${seconds(held.seconds)}. `), held.why)
      : h("p", { class: "quiet" }, group.waiting ? `${count(group.waiting)} transactions are waiting; no thread holds the watermark.` : "No transactions are waiting."),
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "source"), h("th", { class: "num" }, "waiting"), h("th", {}, "first transaction"), h("th", {}, "committed"), h("th", {}, "watermark"))),
      h("tbody", {}, group.sources.map((name) => {
        const first = group.first_waiting[name];
        return h("tr", {}, h("td", {}, h("a", { href: `#/sources/${encodeURIComponent(name)}` }, name)),
          h("td", { class: "num" }, count(overview.sources[name]?.waiting)),
          h("td", { class: "mono" }, first ? `${first.txid} at ${first.order}` : "—"), h("td", {}, first ? clock(first.commit_ts_us) : ""),
          h("td", { class: "mono" }, group.watermarks[name] || "none"));
      })))));
}

function released(heads, opened, open) {
  return h("section", { class: "card" }, h("h2", {}, "Last released"),
    heads === null && h("p", { class: "quiet" }, "Reading the ordered topic …"),
    heads?.length === 0 && h("p", { class: "quiet" }, "No transactions have been released yet."),
    heads?.length > 0 && h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { class: "num" }, "gsn"), ["source", "thread", "transaction", "committed"].map((t) => h("th", {}, t)), h("th", { class: "num" }, "changes"))),
      h("tbody", {}, heads.map((head) => [
        h("tr", { class: "link", "data-key": `gsn-${head.gsn}`, onclick: () => open(head.gsn) },
          h("td", { class: "num" }, h("button", { class: "plain num", type: "button", "aria-expanded": opened?.gsn === head.gsn ? "true" : "false" }, count(head.gsn))),
          h("td", {}, head.source), h("td", {}, head.thread), h("td", { class: "mono" }, head.txid),
          h("td", { title: date(head.commit_ts_us) }, head.skipped ? h("span", { class: "warn-text" }, `skipped: ${head.skipped}`) : clock(head.commit_ts_us)),
          h("td", { class: "num" }, count(head.changes))),
        opened?.gsn === head.gsn && h("tr", { "data-key": `open-${head.gsn}` }, h("td", { colspan: 6, class: "opened" }, detail(opened)))])))));
}

function detail(opened) {
  if (opened.problem) return errorNote({ what: opened.problem.message, hint: opened.problem.hint });
  const found = opened.found;
  if (!found) return h("p", { class: "quiet" }, "Reading the transaction …");
  const tables = Object.keys(found.tables);
  return h("div", { class: "detail" },
    h("p", { class: "faint" }, `order ${found.order} · committed ${date(found.commit_ts_us)} · `,
      tables.map((t) => `${t}: ${Object.entries(found.tables[t]).map(([op, n]) => `${count(n)} ${OPS[op] || op}`).join(", ")}`).join(" · ")),
    tables.map((table) => changes(table, found.rows.filter((row) => row.table === table), found.masked)),
    found.is_cut && h("p", { class: "faint" }, "Only the first changes are shown. Use the API with after_seq to read the rest."));
}

function changes(table, rows, masked) {
  if (!rows.length) return null;
  const columns = [...new Set(rows.flatMap((r) => Object.keys(r.after || r.before || {})))];
  return h("div", {}, h("h3", { class: "mono" }, table), h("div", { class: "scroll inner" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", { class: "num" }, "seq"), h("th", {}, "op"), columns.map((c) => h("th", {}, c,
      masked.some((m) => m.toLowerCase() === `${table}.${c}`.toLowerCase()) && h("span", { class: "faint", title: "masked before publishing" }, " masked"))))),
    h("tbody", {}, rows.map((row) => h("tr", {}, h("td", { class: "num" }, row.seq),
      h("td", {}, h("span", { class: `op ${row.op}` }, OPS[row.op] || row.op)), columns.map((c) => cell(row, c))))))));
}

function cell(row, column) {
  const now = (row.after || row.before || {})[column];
  const before = row.after && row.before ? row.before[column] : undefined;
  const isChanged = before !== undefined && before !== null && JSON.stringify(before) !== JSON.stringify(now);
  if (row.unchanged.includes(column)) return h("td", { class: "faint" }, "not in the log");
  return h("td", { class: "mono" }, isChanged && [h("del", {}, text(before)), " "], h(isChanged ? "ins" : "span", {}, text(now)));
}

const text = (value) => (value === null || value === undefined ? "null" : typeof value === "object" ? JSON.stringify(value) : String(value));
