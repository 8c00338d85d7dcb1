// The documentation of the API, generated from /openapi.json.

import { h, show } from "./dom.js";

const root = document.getElementById("main");
const api = await (await fetch("/openapi.json")).json();
const byTag = {};
for (const [path, methods] of Object.entries(api.paths)) {
  for (const [method, found] of Object.entries(methods)) (byTag[found.tags?.[0] || "other"] ||= []).push({ path, method, ...found });
}

const example = (content) => {
  const body = content?.["application/json"];
  const examples = body?.examples ? Object.values(body.examples)[0].value : undefined;
  const named = body?.schema?.$ref && api.components.schemas[body.schema.$ref.split("/").pop()];
  return examples ?? named?.examples?.[0];
};

const operation = (op) => h("details", {}, h("summary", {}, h("span", { class: `op ${{ get: "r", post: "c", put: "u", patch: "u", delete: "d" }[op.method]}` }, op.method.toUpperCase()), " ",
  h("span", { class: "mono" }, op.path)), h("div", { class: "detail" }, h("p", {}, op.description || op.summary),
  op.parameters?.length > 0 && h("table", {}, h("tbody", {}, op.parameters.map((p) => h("tr", {}, h("td", { class: "mono" }, p.name), h("td", {}, p.in), h("td", { class: "quiet" }, p.description || p.schema?.description || ""))))),
  example(op.requestBody?.content) && h("pre", { class: "note mono" }, JSON.stringify(example(op.requestBody.content), null, 2)),
  h("table", {}, h("tbody", {}, Object.entries(op.responses).map(([status, r]) => h("tr", {}, h("td", { class: "mono" }, status), h("td", {}, r.description)))))));

show(root, h("h1", {}, "API"), h("p", { class: "quiet" }, api.info.description),
  Object.entries(byTag).map(([tag, ops]) => h("section", { class: "card" }, h("h2", {}, tag), ops.map(operation))));
