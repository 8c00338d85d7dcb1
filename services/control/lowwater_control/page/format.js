// Formats numbers, times, states and errors.

import { h } from "./dom.js";

const PLAIN = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (n) => PLAIN.format(Math.round(n || 0));
export const short = (n) => ((n || 0) < 10000 ? count(n) : SHORT.format(n));

export function bytes(n) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let i = 0;
  for (n = n || 0; n >= 1000 && i < units.length - 1; i += 1) n /= 1000;
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

export function seconds(s) {
  if (s === null || s === undefined) return "";
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
}

export const clock = (us) => (us ? new Date(us / 1000).toLocaleTimeString("en-GB") : "");
export const date = (us) => (us ? new Date(us / 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" }) : "");
export const pill = (state) => h("span", { class: `pill ${state}` }, state);

/** The major number of an order or a mark, as BigInt: it has up to twenty digits. */
export const major = (order) => BigInt((order || "0").split(".")[0]);

/** An error with its position and hint. */
export function errorNote(error) {
  if (!error) return null;
  const where = [error.thread !== null && error.thread !== undefined && `thread ${error.thread}`, error.position && `at ${error.position}`];
  return h("div", { class: "note bad", role: "alert" },
    h("strong", {}, error.error ? `${error.error}: ` : ""), error.what || error.message,
    where.some(Boolean) && h("span", { class: "mono" }, ` (${where.filter(Boolean).join(", ")})`),
    error.hint && h("p", { class: "hint" }, "→ ", error.hint));
}

/** The last values as an area chart; empty for fewer than three values. */
export function sparkline(values, about) {
  const found = values.filter((v) => v !== undefined && v !== null);
  if (found.length < 3) return h("div", { class: "spark" });
  const top = Math.max(...found, 1);
  const points = found.map((v, i) => `${((100 * i) / (found.length - 1)).toFixed(1)} ${(26 - (24 * v) / top).toFixed(1)}`);
  return h("div", { class: "spark" }, h("svg", { viewBox: "0 0 100 28", preserveAspectRatio: "none", role: "img", "aria-label": about },
    h("path", { class: "area", d: `M0 28L${points.join("L")}L100 28Z` }), h("path", { class: "edge", d: `M${points.join("L")}` })));
}
