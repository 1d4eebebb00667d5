// The one place that speaks to the broker: /api/v1 on the host the console came from.

const BASE = "/api/v1";

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Done when the broker doesn't know any more who asks. An answer that was asked for before the newest login says
// nothing about it.
let unknown = () => {};
let logins = 0;
export function whenUnknown(task) {
  unknown = task;
}

export function path(...parts) {
  return parts.map((part) => `/${encodeURIComponent(part)}`).join("");
}

// The answer's JSON and its ETag. ApiError with the broker's own reason; status 0 if it doesn't answer.
export async function ask(method, where, { query, body, etag, signal } = {}) {
  // By the second one the broker knows that a page asks: it has a login of its own.
  const headers = { Accept: "application/json", "X-Requested-With": "console" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (etag) headers["If-Match"] = etag;
  const text = body === undefined ? undefined : JSON.stringify(body);
  const asked = logins;
  let answer;
  let content;
  try {
    answer = await fetch(BASE + where + search(query), { method, headers, body: text, signal, cache: "no-store" });
    content = await answer.text();
  } catch (fault) {
    if (signal && signal.aborted) throw fault;
    throw new ApiError(0, "the broker does not answer");
  }
  const data = placed(parsed(content));
  if (where === "/session") logins += Number(method === "POST" && answer.ok);
  else if (answer.status === 401 && asked === logins) unknown();
  if (!answer.ok) throw new ApiError(answer.status, reason(data, content, answer));
  return { data, etag: answer.headers.get("ETag") };
}

export async function get(where, query, signal) {
  return (await ask("GET", where, { query, signal })).data;
}

export async function post(where, body = {}, query) {
  return (await ask("POST", where, { body, query })).data;
}

export async function remove(where, query) {
  return (await ask("DELETE", where, { query })).data;
}

// A node whose name alone doesn't lead to its cell goes by its address.
export function addressed(row) {
  if (row && row.address) Object.assign(row, { shown: row.name, name: row.address });
  return row;
}

function placed(data) {
  if (data && Array.isArray(data.items)) data.items.forEach(addressed);
  return data;
}

function search(query) {
  const wanted = Object.entries(query || {}).filter(([, value]) => value !== undefined && value !== "" && value !== null);
  return wanted.length ? `?${new URLSearchParams(wanted)}` : "";
}

function parsed(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

function reason(data, content, answer) {
  if (data && typeof data.error === "string") return data.error;
  if (data && data.detail) return typeof data.detail === "string" ? data.detail : JSON.stringify(data.detail);
  return content.trim().slice(0, 300) || `${answer.status} ${answer.statusText}`;
}

// --- verbs by their names

export const nodePath = (kind, name) => `/${plurals[kind]}${path(name)}`;
export const plurals = { queue: "queues", topic: "topics", subscription: "subscriptions" };
export const hold = (target, stop) => post(`/producers/${stop ? "stop" : "start"}`, { target });
