// The choice of the group: a row of tabs if there are several groups.

import { h } from "./dom.js";

export function chosen(overview, rest, isFit = () => true) {
  const names = Object.keys(overview.groups).filter((name) => isFit(overview.groups[name]));
  return { names, name: names.includes(rest[0]) ? rest[0] : names[0] };
}

export function tabs(page, names, name) {
  return names.length > 1 && h("nav", { class: "tabs", "aria-label": "Groups" }, names.map((n) => h("a", {
    href: `#/${page}/${encodeURIComponent(n)}`, "aria-current": n === name ? "page" : null }, n)));
}
