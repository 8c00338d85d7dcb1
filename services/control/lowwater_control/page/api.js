// Calls of the API: problem details as errors, the token, and the event stream (EventSource cannot send a token).

import { ask } from "./dom.js";

export class Problem extends Error {
  constructor(body) {
    super(body.detail || body.title || "no answer");
    this.hint = body.hint || "";
    this.status = body.status || 0;
    this.fields = Object.fromEntries((body.errors || []).map((e) => [e.field, e.detail]));
  }
}

const TOKEN = "lowwater.token";
let asking = null;

function headers(more) {
  const token = sessionStorage.getItem(TOKEN);
  return { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...more };
}

/** One dialog, even if several requests need the token. */
function askForToken() {
  asking ||= ask({ title: "Token required", text: "It is stored in this browser tab only.", action: "Use token",
    fields: [{ name: "token", label: "Token", type: "password", required: true }] })
    .then((given) => { if (given) sessionStorage.setItem(TOKEN, given.token.trim()); return Boolean(given); })
    .finally(() => { asking = null; });
  return asking;
}

async function send(method, path, body, signal) {
  const more = body === undefined ? {} : { "Content-Type": "application/json" };
  for (;;) {
    let answer;
    try {
      answer = await fetch(path, { method, headers: headers(more), body: body && JSON.stringify(body), signal });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Problem({ detail: "The control service does not answer.", hint: "Check that it is running. The page retries." });
    }
    if (answer.status === 401 && (await askForToken())) continue;
    if (!answer.ok) throw new Problem(await answer.json().catch(() => ({ status: answer.status })));
    return answer;
  }
}

async function call(method, path, body) {
  const answer = await send(method, path, body);
  return answer.status === 204 ? null : answer.json();
}

export const get = (path) => call("GET", path);
export const post = (path, body) => call("POST", path, body);
export const put = (path, body) => call("PUT", path, body);
export const remove = (path) => call("DELETE", path);
export const at = (...parts) => "/v1/" + parts.map(encodeURIComponent).join("/");

/** Reads server-sent events. Reconnects whenever the connection ends. */
export async function follow(path, { onEvent, onState }) {
  for (;;) {
    try {
      const answer = await send("GET", path);
      onState("on");
      await read(answer.body.getReader(), onEvent);
      onState("wait");
    } catch {
      onState("off");
    }
    await new Promise((done) => setTimeout(done, 1500));
  }
}

async function read(reader, onEvent) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += decoder.decode(value, { stream: true }).replaceAll("\r\n", "\n");
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const text of events) {
      const lines = text.split("\n");
      const name = lines.find((l) => l.startsWith("event:"))?.slice(6).trim();
      const data = lines.filter((l) => l.startsWith("data:")).map((l) => l.slice(5).trim()).join("\n");
      if (name && data) onEvent(name, JSON.parse(data));
    }
  }
}
