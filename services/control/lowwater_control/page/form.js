// A form from a JSON Schema written by pydantic. Types without an input of their own are entered as JSON.

import { h } from "./dom.js";

const SECRET = /password|secret|token|hash_key/i;

function plain(schema, root) {
  let found = schema;
  if (found.$ref) found = { ...root.$defs[found.$ref.split("/").pop()], ...found, $ref: undefined };
  if (found.allOf?.length === 1) found = { ...plain(found.allOf[0], root), ...found, allOf: undefined };
  const kinds = found.anyOf?.filter((one) => one.type !== "null");
  if (kinds?.length === 1) found = { ...plain(kinds[0], root), ...found, anyOf: undefined, type: plain(kinds[0], root).type };
  return found;
}

export function fields(root) {
  const required = new Set(root.required || []);
  return Object.entries(root.properties || {}).map(([name, schema]) => ({ name, schema: plain(schema, root), required: required.has(name) }))
    // required settings first, then host, user and the like
    .sort((a, b) => rank(b) - rank(a));
}

const rank = (f) => (f.required ? 2 : 0) + (/^(host|port|user|password|database|dsn|directory)$/.test(f.name) ? 1 : 0);
export const isFirst = (f) => rank(f) > 0;

const isList = (s) => s.type === "array" && (!s.items || s.items.type === "string");
const isMap = (s) => s.type === "object" && s.additionalProperties?.type === "string";

export function control(field, value, problem, onInput) {
  const { name, schema, required } = field;
  const id = `f-${name}`;
  const common = { id, name, required, "data-keep": "", "aria-describedby": `${id}-about`, oninput: (e) => onInput(name, read(field, e.target)), autocomplete: "off" };
  const fallback = schema.default;
  let input;
  if (schema.enum) {
    input = h("select", { ...common, onchange: common.oninput }, [!required && h("option", { value: "" }, `default: ${fallback}`), schema.enum.map((one) => h("option", { value: one, selected: value === one }, one))]);
  } else if (schema.type === "boolean") {
    input = h("select", { ...common, onchange: common.oninput }, [["", `default: ${fallback}`], ["true", "yes"], ["false", "no"]].map(([v, t]) => h("option", { value: v, selected: String(value) === v }, t)));
  } else if (schema.type === "integer" || schema.type === "number") {
    input = h("input", { ...common, type: "number", step: schema.type === "integer" ? 1 : "any", min: schema.minimum, max: schema.maximum, placeholder: fallback ?? "", value: value ?? "" });
  } else if (isList(schema)) {
    input = h("textarea", { ...common, placeholder: "one per line" });
    input.value = (value || []).join("\n");
  } else if (schema.type === "string" || schema.format === "path") {
    input = h("input", { ...common, type: "text", placeholder: SECRET.test(name) ? "${env:NAME} or ${file:/path}" : fallback ?? "", value: value ?? "" });
  } else {
    input = h("textarea", { ...common, placeholder: isMap(schema) ? "name=value, one a line" : "JSON" });
    input.value = value === undefined ? "" : isMap(schema) ? Object.entries(value).map((e) => e.join("=")).join("\n") : JSON.stringify(value);
  }
  return h("div", { class: problem ? "field wrong" : "field", "data-key": `field-${name}` },
    h("label", { for: id }, name, required && h("span", { class: "faint" }, " required")), input,
    h("span", { id: `${id}-about`, class: "faint" }, schema.description || ""),
    problem && h("span", { class: "error", role: "alert" }, problem));
}

/** The value entered, converted to the type of the schema; undefined if empty. */
function read({ schema }, input) {
  const text = input.value;
  if (text.trim() === "") return undefined;
  if (schema.type === "boolean") return text === "true";
  if (schema.type === "integer" || schema.type === "number") return Number(text);
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  if (isList(schema)) return lines;
  if (isMap(schema)) return Object.fromEntries(lines.map((line) => { const [k, ...v] = line.split("="); return [k.trim(), v.join("=").trim()]; }));
  if (schema.enum || schema.type === "string" || schema.format === "path") return text;
  try { return JSON.parse(text); } catch { return text; }
}
