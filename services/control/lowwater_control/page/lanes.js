// Threads as lanes: each is filled up to its mark; the line across all lanes is the watermark, the lowest mark.

import { h } from "./dom.js";
import { bytes, major, pill, seconds } from "./format.js";

/** The left end of the lanes: the lowest watermark of the history, so that progress is visible. */
function start(source, history, watermark) {
  const before = history.map((p) => p.sources[source.name]).filter(Boolean).map(lowest).filter((m) => m !== null);
  return before.length ? before.reduce((a, b) => (a < b ? a : b)) : watermark;
}

function lowest(source) {
  const marks = source.threads.filter((t) => !t.is_excluded && t.mark).map((t) => major(t.mark));
  return marks.length ? marks.reduce((a, b) => (a < b ? a : b)) : null;
}

export function lanes(source, history, act) {
  const known = source.threads.filter((t) => t.mark);
  const watermark = lowest(source);
  if (!known.length) return h("section", { class: "card" }, h("h2", {}, "Threads"), h("p", { class: "quiet" }, "No thread has a mark yet."));
  const begin = start(source, history, watermark ?? 0n);
  // one less, so that the lowest mark is visible, too
  const from = begin - 1n;
  const to = known.flatMap((t) => [major(t.mark), major(t.merger_mark)]).reduce((a, b) => (a > b ? a : b));
  const span = Number(to - from);
  const at = (number) => Math.max(0, Math.min(100, 5 + (87 * Number(number - from)) / span));
  const place = (order) => at(major(order));
  const line = watermark === null ? null : at(watermark);
  const isSingle = known.length === 1;
  return h("section", { class: "card" },
    h("div", { class: "head", style: "margin-bottom:.75rem" }, h("h2", { class: "grow", style: "margin:0" }, "Threads and watermark"),
      h("span", { class: "faint" }, "watermark ", h("span", { class: "mono" }, watermark === null ? "none: all threads are excluded" : `${watermark}.*`))),
    h("div", { class: "lanes" }, source.threads.map((t) => lane(t, place, line, isSingle, act))));
}

function lane(thread, place, line, isSingle, act) {
  const holds = thread.holds_seconds !== null;
  // the merger's status may be newer than the extractor's
  const mark = thread.merger_mark && major(thread.merger_mark) > major(thread.mark) ? thread.merger_mark : thread.mark;
  const kind = thread.is_excluded ? "excluded" : holds ? "holds" : "";
  const left = mark ? place(mark) : 0;
  return h("div", { class: `lane ${kind}`, "data-key": `t-${thread.thread}` },
    h("div", { class: "lane-name" }, h("strong", {}, `Thread ${thread.thread}`),
      h("span", { class: "faint" }, thread.is_excluded ? "excluded" : holds ? `holds, ${seconds(thread.holds_seconds)}` : thread.state)),
    h("div", { class: "track", role: "img", "aria-label": `Thread ${thread.thread}: mark ${thread.mark}${holds ? ", holds the watermark" : ""}` },
      h("div", { class: "fill", style: `width:${left}%` }),
      thread.merger_mark && thread.merger_mark !== mark && h("div", { class: "tick", style: `left:${place(thread.merger_mark)}%`, title: `at the merger: ${thread.merger_mark}` }),
      line !== null && h("div", { class: "line", style: `left:${line}%` }),
      h("div", { class: "head-dot", style: `left:${left}%` })),
    h("div", { class: "lane-end" }, h("span", { class: "mono" }, mark || "no mark"),
      thread.is_held && pill("held"),
      thread.lead_bytes > 100000 && h("span", { class: "faint" }, `${bytes(thread.lead_bytes)} ahead`)),
    !isSingle && h("button", { type: "button", class: "small", "data-action": thread.is_excluded ? "include" : "exclude",
      onclick: () => act(thread.thread, thread.is_excluded ? "include" : "exclude") }, thread.is_excluded ? "Include" : "Exclude"));
}
