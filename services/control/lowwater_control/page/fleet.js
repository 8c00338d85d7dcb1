// Fleet: the data flow sources → merger → landing, with rates, lag and state.

import { h, show } from "./dom.js";
import { bytes, count, errorNote, pill, seconds, short, sparkline } from "./format.js";

export function fleetView(root, _rest, state) {
  return {
    draw() {
      const overview = state.overview;
      if (!overview) return show(root, h("p", { class: "quiet pad" }, "Waiting for the fleet status …"));
      const groups = Object.values(overview.groups);
      const free = Object.values(overview.sources).filter((s) => !s.group);
      show(root,
        h("div", { class: "head" }, h("h1", { class: "grow" }, "Fleet"), summary(overview)),
        groups.map((group) => flow(group, overview, state.history)),
        free.length > 0 && h("section", { class: "card" }, h("h2", {}, "Without a group"),
          h("div", { class: "cards" }, free.map((s) => sourceCard(s, state.history)))),
        groups.length + free.length === 0 && empty(),
        Object.entries(overview.runners).map(([name, runner]) => processes(name, runner)));
      root.querySelectorAll(".flow").forEach(connect);
    },
  };
}

function empty() {
  return h("section", { class: "card pad" }, h("h2", {}, "Nothing is captured yet"),
    h("p", { class: "quiet" }, "A source is one database. Its transactions are read from its log, merged into one order with the other sources of its group, and written to the lake."),
    h("p", {}, h("a", { href: "#/add" }, "Add a source")));
}

function summary(overview) {
  const sources = Object.values(overview.sources);
  const groups = Object.values(overview.groups);
  const sum = (of) => groups.reduce((total, group) => total + of(group), 0);
  const running = sources.filter((s) => s.state === "running").length;
  return h("dl", { class: "figures" },
    figure("sources running", `${running} of ${sources.length}`),
    figure("released", `${short(sum((g) => g.per_second))}/s`),
    figure("waiting", short(sum((g) => g.waiting))),
    figure("oldest waiting", seconds(Math.max(0, ...groups.map((g) => g.lag_seconds)))));
}

const figure = (name, value) => h("div", {}, h("dt", {}, name), h("dd", { class: "num" }, value));

function processes(name, runner) {
  return h("section", { class: "card", "data-key": `runner-${name}` },
    h("div", { class: "head", style: "margin-bottom:.5rem" }, h("h2", { class: "grow", style: "margin:0" }, "Processes"), h("span", { class: "faint" }, `run by ${name}`)),
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "process"), h("th", {}, "state"), h("th", { class: "num" }, "restarts"), h("th", { class: "num" }, "pid"), h("th", {}, "log"))),
      h("tbody", {}, Object.entries(runner.processes || {}).map(([process, p]) => h("tr", {}, h("td", {}, process),
        h("td", {}, pill(p.state.startsWith("down") ? "failed" : p.state), p.state.startsWith("down") && h("span", { class: "faint" }, ` ${p.state}`)),
        h("td", { class: "num" }, count(p.restarts)), h("td", { class: "num" }, p.pid ?? "—"), h("td", { class: "mono faint" }, p.log)))))));
}

function flow(group, overview, history) {
  const sources = group.sources.map((name) => overview.sources[name]).filter(Boolean);
  return h("section", { class: "card", "data-key": `group-${group.name}`, "aria-label": `Group ${group.name}` },
    h("div", { class: "head", style: "margin-bottom:1rem" }, h("h2", { style: "margin:0" }, group.name), pill(group.state),
      group.wanted !== "running" && h("span", { class: "faint" }, `desired: ${group.wanted}`),
      h("span", { class: "grow" }), h("a", { href: `#/transactions/${encodeURIComponent(group.name)}` }, "Transactions")),
    group.holder && holder(group.holder),
    h("div", { class: "flow" },
      h("div", { class: "stage sources" }, sources.map((s) => sourceCard(s, history)),
        sources.length === 0 && h("p", { class: "quiet" }, "No source yet.")),
      h("div", { class: "stage" }, mergerCard(group, history)),
      h("div", { class: "stage" }, landingCard(group, history)),
      h("svg", { class: "pipes", "aria-hidden": "true", "data-keep": "" })));
}

function holder(held) {
  return h("div", { class: "note warn", style: "margin-bottom:1rem" },
    h("strong", {}, `${held.source}’s thread ${held.thread ?? "?"} holds the watermark, for ${seconds(held.seconds)}. `),
    h("span", {}, `${count(held.waiting)} transactions wait. `),
    h("span", { class: "faint" }, held.why));
}

function sourceCard(source, history) {
  return h("a", { class: `node ${source.state}`, href: `#/sources/${encodeURIComponent(source.name)}`, "data-key": `s-${source.name}`,
    "data-rate": source.state === "running" ? source.per_second : 0 },
  h("div", { class: "row between" }, h("h3", {}, source.name), pill(source.state)),
  h("div", { class: "row between" },
    h("span", { class: "faint" }, `${source.kind} · ${source.threads.length} thread${source.threads.length === 1 ? "" : "s"}`),
    h("span", { class: "num rate" }, `${short(source.per_second)}/s`)),
  sparkline(history.map((p) => p.sources[source.name]?.per_second), `${source.name}: transactions per second`),
  copyBar(source.copies),
  source.error && h("p", { class: "bad-text" }, source.error.what));
}

function copyBar(copies) {
  if (!copies || !copies.tables || copies.copied >= copies.tables) return null;
  return h("div", { class: "faint" }, `${copies.copied} of ${copies.tables} tables copied`,
    h("div", { class: "meter" }, h("span", { style: `width:${(100 * copies.copied) / copies.tables}%` })));
}

function mergerCard(group, history) {
  return h("div", { class: `node big ${group.state}`, "data-rate": group.per_second },
    h("div", { class: "row between" }, h("h3", {}, "Merger"), h("span", { class: "num rate" }, `${short(group.per_second)}/s`)),
    h("div", { class: "gsn num" }, count(group.gsn)), h("div", { class: "faint" }, "last gsn released"),
    sparkline(history.map((p) => p.groups[group.name]?.per_second), "released per second"),
    h("dl", { class: "pairs" },
      pair("waiting", count(group.waiting)), pair("buffered", bytes(group.waiting_bytes)), pair("oldest waiting", seconds(group.lag_seconds))),
    errorNote(group.error));
}

const pair = (name, value) => [h("dt", {}, name), h("dd", { class: "num" }, value)];

function landingCard(group, history) {
  const landing = group.landing;
  if (!landing) {
    return h("div", { class: "node big end" }, h("h3", {}, "Kafka"),
      h("p", { class: "faint" }, "This group has no lake. Its transactions are in the topic ", h("code", {}, `lowwater.${group.name}.transactions`), "."));
  }
  const behind = Math.max(0, group.gsn - landing.gsn);
  const copies = landing.copies || {};
  return h("a", { class: `node big ${landing.state}`, href: `#/lake/${encodeURIComponent(group.name)}`, "data-rate": landing.rows_per_second },
    h("div", { class: "row between" }, h("h3", {}, "Lake"), pill(landing.state)),
    h("div", { class: "gsn num" }, count(landing.gsn)), h("div", { class: "faint" }, "last gsn landed"),
    sparkline(history.map((p) => p.groups[group.name]?.landing?.per_second), "landed per second"),
    h("dl", { class: "pairs" }, pair("behind", behind ? `${count(behind)} transactions` : "nothing"),
      pair("landings", count(landing.n)), pair("rows", `${short(landing.rows_per_second)}/s`)),
    copies.tables_left > 0 && h("div", { class: "faint" }, `copying ${count(copies.tables_left)} tables, ${short(copies.rows_left)} rows left`),
    errorNote(landing.error));
}

/** Draws the lines between the cards of the stages; animated while data flows. */
function connect(flowNode) {
  const svg = flowNode.querySelector("svg.pipes");
  const box = flowNode.getBoundingClientRect();
  const isTall = getComputedStyle(flowNode).gridTemplateColumns.split(" ").length === 1;
  svg.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
  const stages = [...flowNode.querySelectorAll(".stage")].map((s) => [...s.querySelectorAll(".node")]);
  const lines = [];
  stages.slice(0, -1).forEach((nodes, i) => nodes.forEach((from) => stages[i + 1].forEach((to) => {
    lines.push([from.getBoundingClientRect(), to.getBoundingClientRect(), Number(from.dataset.rate)]);
  })));
  const paths = isTall ? [] : lines.map(([a, b, rate]) => {
    const [x1, y1, x2, y2] = [a.right - box.left, a.top + a.height / 2 - box.top, b.left - box.left, b.top + b.height / 2 - box.top];
    const middle = (x1 + x2) / 2;
    return h("path", { d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`, class: rate > 0 ? "moving" : "",
      style: rate > 0 ? `animation-duration:${Math.max(0.5, 3 - Math.log10(rate + 1) * 0.8)}s` : "" });
  });
  show(svg, paths);
}
