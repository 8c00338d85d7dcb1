// Creates elements, and updates a tree in place, so that focus is not lost.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "line", "rect", "g", "text", "circle"]);

export function h(tag, props, ...children) {
  const node = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node[name] = value;
    else if (name === "value") { node.value = value; node.setAttribute("value", value); }
    else node.setAttribute(name === "className" ? "class" : name, value === true ? "" : value);
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

const HANDLERS = ["onclick", "onchange", "oninput", "onsubmit", "onkeydown"];

/** Updates `old` to equal `fresh`, with as few changes as possible. */
export function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || key(old) !== key(fresh)) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  // inputs being edited and details opened by the user are not changed
  if (old.hasAttribute?.("data-keep")) return;
  for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !(name === "open")) old.removeAttribute(name);
  for (const name of HANDLERS) if (old[name] !== fresh[name]) old[name] = fresh[name];
  morphChildren(old, [...fresh.childNodes]);
}

const key = (node) => (node.getAttribute ? node.getAttribute("data-key") : null);

function morphChildren(parent, fresh) {
  const now = [...parent.childNodes];
  fresh.forEach((node, index) => (index < now.length ? morph(now[index], node) : parent.append(node)));
  now.slice(fresh.length).forEach((node) => node.remove());
}

/** Updates the content of `root` to these nodes. */
export function show(root, ...nodes) {
  const holder = document.createElement("div");
  append(holder, nodes);
  morphChildren(root, [...holder.childNodes]);
}

export function toast(text, bad = false) {
  const node = h("div", { class: bad ? "toast bad" : "toast" }, text);
  document.getElementById("toasts").append(node);
  setTimeout(() => node.remove(), bad ? 8000 : 4000);
}

/** Shows a dialog. Resolves to the values of its form when it is submitted, else to null. */
export function ask({ title, text, fields = [], action = "OK", danger = false }) {
  return new Promise((resolve) => {
    const inputs = fields.map((f) => h("div", { class: "field" },
      h("label", { for: `ask-${f.name}` }, f.label),
      h("input", { id: `ask-${f.name}`, name: f.name, type: f.type || "text", required: f.required, autocomplete: "off" })));
    const dialog = h("dialog", { "aria-labelledby": "ask-title" }, h("form", { method: "dialog" },
      h("h2", { id: "ask-title" }, title),
      text && h("div", { class: "quiet" }, text),
      inputs,
      h("div", { class: "row" },
        h("button", { type: "button", value: "no", onclick: () => dialog.close("") }, "Cancel"),
        h("button", { class: danger ? "danger" : "primary", value: "yes" }, action))));
    dialog.addEventListener("close", () => {
      const given = dialog.returnValue === "yes" ? Object.fromEntries(new FormData(dialog.querySelector("form"))) : null;
      dialog.remove();
      resolve(given);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
