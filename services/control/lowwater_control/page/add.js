// Add a source: choose its kind, fill in the form, test the connection, choose tables.

import { at, get, post, put } from "./api.js";
import { h, show, toast } from "./dom.js";
import { errorNote } from "./format.js";
import { control, fields, isFirst } from "./form.js";

const ABOUT = {
  postgres: "PostgreSQL 14 to 18: logical replication or cursor columns",
  oracle: "Oracle, single instance or RAC: redo files or LogMiner",
  mysql: "MySQL and MariaDB: binlog",
  mongodb: "MongoDB: change stream",
  turso: "Turso: CDC table",
};
const ALL = ["*.*"];

export function addView(root, _rest, state) {
  const s = { kinds: null, kind: null, name: "", group: "", newGroup: "", lake: "", config: {}, problems: {}, problem: null, checks: null, tables: null, busy: "" };
  let isLeft = false;

  const draw = () => { if (!isLeft) view.draw(); };
  const set = (name, value) => {
    if (value === undefined) delete s.config[name]; else s.config[name] = value;
    delete s.problems[`config.${name}`];
  };

  async function busy(what, work) {
    Object.assign(s, { busy: what, problem: null, problems: {} });
    draw();
    try {
      await work();
    } catch (problem) {
      s.problem = problem;
      // the field paths of a new source are one level deeper than those of a candidate
      s.problems = Object.fromEntries(Object.entries(problem.fields || {}).map(([f, what]) => [f.replace(/^config\.config\./, "config."), what]));
    }
    s.busy = "";
    draw();
  }

  const isWide = () => "tables" in (s.kind.config_schema.properties || {}) && !(s.config.tables || []).length;
  const candidate = () => ({ name: s.name || "candidate", config: isWide() ? { ...s.config, tables: ALL } : s.config });

  const test = () => busy("Testing the connection …", async () => {
    s.checks = null;
    s.checks = await post(at("source-types", s.kind.kind, "validate"), candidate());
  });
  const discover = () => busy("Reading the tables …", async () => {
    const wide = { ...candidate(), config: { ...s.config, ...("tables" in (s.kind.config_schema.properties || {}) ? { tables: ALL } : {}) } };
    s.tables = await post(at("source-types", s.kind.kind, "tables"), wide);
  });
  const add = () => busy("Adding the source …", async () => {
    let group = s.group || null;
    if (group === "+") {
      group = s.newGroup;
      await put(at("groups", group, "config"), s.lake ? { lake: { uri: s.lake } } : {});
    }
    await post("/v1/sources", { name: s.name, config: { kind: s.kind.kind, config: s.config, ...(group ? { group } : {}) } });
    toast(`${s.name} was added`);
    location.hash = `#/sources/${encodeURIComponent(s.name)}`;
  });

  const view = {
    leave() { isLeft = true; },
    draw() {
      show(root, h("h1", {}, "Add a source"), kinds(s, (kind) => { Object.assign(s, { kind, config: {}, checks: null, tables: null, problem: null, problems: {} }); draw(); }),
        s.kind && naming(s, Object.keys(state.overview?.groups || {}), draw), s.kind && settings(s, set),
        s.kind && tablesCard(s, discover, set, draw), s.kind && finish(s, test, add));
    },
  };
  get("/v1/source-types").then((found) => { s.kinds = found; draw(); }, (problem) => { s.problem = problem; draw(); });
  return view;
}

function kinds(s, choose) {
  return h("section", { class: "card" }, h("h2", {}, "1 · Database"), !s.kinds && !s.problem && h("p", { class: "quiet" }, "Loading …"),
    s.problem && !s.kinds && errorNote({ what: s.problem.message, hint: s.problem.hint }),
    h("div", { class: "kinds", role: "group", "aria-label": "Kinds" }, (s.kinds || []).map((kind) => h("button", { type: "button", class: "kind", disabled: !kind.is_available,
      "aria-pressed": s.kind?.kind === kind.kind ? "true" : "false", onclick: () => choose(kind), title: kind.why },
    h("strong", {}, kind.kind), h("span", { class: "faint" }, kind.is_available ? ABOUT[kind.kind] || "" : kind.why)))));
}

function naming(s, groups, draw) {
  const text = (name, label, about, extra = {}) => h("div", { class: s.problems[name] ? "field wrong" : "field", "data-key": `n-${name}` }, h("label", { for: `n-${name}` }, label),
    h("input", { id: `n-${name}`, "data-keep": "", value: s[name], oninput: (e) => { s[name] = e.target.value; }, autocomplete: "off", ...extra }), h("span", { class: "faint" }, about),
    s.problems[name] && h("span", { class: "error", role: "alert" }, s.problems[name]));
  return h("section", { class: "card" }, h("h2", {}, "2 · Name and group"), h("div", { class: "grid" },
    text("name", "Name", "lower-case letters, digits, - and _; topics are named after it", { required: true, pattern: "[a-z0-9][a-z0-9_\\-]{0,62}" }),
    h("div", { class: s.problems["config.group"] ? "field wrong" : "field" }, h("label", { for: "n-group" }, "Group"),
      h("select", { id: "n-group", onchange: (e) => { s.group = e.target.value; draw(); } },
        h("option", { value: "", selected: s.group === "" }, "none: changes stay in the source's topic"), groups.map((g) => h("option", { value: g, selected: s.group === g }, g)),
        h("option", { value: "+", selected: s.group === "+" }, "a new group …")), h("span", { class: "faint" }, "the sources of a group share one transaction order")),
    s.group === "+" && text("newGroup", "Name of the new group", ""),
    s.group === "+" && text("lake", "Lake", "a directory, s3://bucket/prefix, …; empty: transactions stay in Kafka")));
}

function settings(s, set) {
  const all = fields(s.kind.config_schema).filter((f) => f.name !== "tables");
  const draw = (f) => control(f, s.config[f.name], s.problems[`config.${f.name}`], set);
  const more = all.filter((f) => !isFirst(f));
  const isOpen = more.some((f) => s.problems[`config.${f.name}`]);
  return h("section", { class: "card", "data-key": `settings-${s.kind.kind}` }, h("h2", {}, "3 · Connection"),
    h("p", { class: "faint", style: "margin-bottom:.75rem" }, "Enter secrets as references (${env:NAME} or ${file:/path}), not as values. They are resolved where the extractor runs."),
    h("div", { class: "grid" }, all.filter(isFirst).map(draw)),
    more.length > 0 && h("details", { open: isOpen }, h("summary", {}, `${more.length} more settings with default values`), h("div", { class: "grid" }, more.map(draw))));
}

function tablesCard(s, discover, set, draw) {
  if (!("tables" in (s.kind.config_schema.properties || {}))) return null;
  const chosenNow = new Set(s.config.tables || []);
  const toggle = (name, isOn) => {
    if (isOn) chosenNow.add(name); else chosenNow.delete(name);
    set("tables", chosenNow.size ? [...chosenNow] : undefined);
    draw();
  };
  return h("section", { class: "card" }, h("div", { class: "head", style: "margin-bottom:.75rem" }, h("h2", { class: "grow", style: "margin:0" }, "4 · Tables"),
    h("button", { type: "button", onclick: discover, disabled: Boolean(s.busy) }, "List tables")),
  s.problems["config.tables"] && h("p", { class: "bad-text", role: "alert" }, s.problems["config.tables"]),
  s.tables
    ? h("div", { class: "choices" }, s.tables.length === 0 && h("p", { class: "quiet" }, "There are no tables that can be captured."),
      s.tables.map((t) => h("label", { class: "choice" }, h("input", { type: "checkbox", checked: chosenNow.has(t.table), onchange: (e) => toggle(t.table, e.target.checked) }),
        h("span", { class: "mono" }, t.table), h("span", { class: "faint" }, t.key.length ? `key ${t.key.join(", ")}` : "no key"))))
    : control({ name: "tables", schema: { type: "array", items: { type: "string" }, description: "schema.table or schema.*, one per line; or list the tables and choose" } }, s.config.tables, null, set));
}

function finish(s, test, add) {
  return h("section", { class: "card" }, h("h2", {}, "Test and add"),
    s.problem && errorNote({ what: s.problem.message, hint: s.problem.hint }),
    s.checks && h("ul", { class: "checks" }, s.checks.checks.map((c) => h("li", { class: c.is_good ? "good" : "bad" },
      h("strong", {}, c.name), " ", c.what, !c.is_good && c.fix && h("p", { class: "hint" }, "→ ", h("code", {}, c.fix))))),
    h("div", { class: "row" }, h("button", { type: "button", onclick: test, disabled: Boolean(s.busy), "data-action": "test" }, "Test connection"),
      h("button", { type: "button", class: "primary", onclick: add, disabled: Boolean(s.busy), "data-action": "add" }, "Add source"),
      s.busy && h("span", { class: "quiet", role: "status" }, s.busy)));
}
