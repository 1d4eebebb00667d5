// A look at the messages of a queue, oldest first, a page at a time; nothing is taken out.

import { get, nodePath } from "../api.js";
import { h, put, say } from "../dom.js";
import { count, size } from "../format.js";
import { button, empty, failed, table } from "../page.js";
import { guarded } from "../session.js";

const PAGE = 20;

export function messages(name, place, signal) {
  let offset = 0;
  const list = h("div", { "aria-live": "polite" });
  const where = h("span", { class: "hint" });
  const look = async (wanted) => {
    try {
      const told = await get(`${nodePath("queue", name)}/messages`, { offset: wanted, count: PAGE }, signal);
      const found = told.messages;
      offset = wanted;
      say(where, found.length ? `messages ${count(offset + 1)} to ${count(offset + found.length)}${told.paged ? `; ${count(told.paged)} of the queue are on disk only` : ""}` : "");
      put(list, found.length ? shown(found) : empty(offset ? "No more messages." : "The queue holds no message."));
      older.disabled = offset === 0;
      newer.disabled = found.length < PAGE;
    } catch (fault) {
      if (!signal.aborted) put(list, failed(fault, () => look(wanted)));
    }
  };
  const older = button("Older", () => look(Math.max(0, offset - PAGE)));
  const newer = button("Newer", () => look(offset + PAGE));
  older.disabled = newer.disabled = true;
  return h("div", {}, h("div", { class: "controls" }, guarded(button("Browse", () => look(0)), "browse", place), older, newer, where), list);
}

function shown(found) {
  return table("Messages", [
    ["Number", (row) => count(row.number), "num"],
    ["State", (row) => row.state],
    ["Size", (row) => size(row.bytes), "num"],
    ["Durable", (row) => (row.durable ? "yes" : "no")],
    ["Tries", (row) => count(row.delivery_count), "num"],
    ["Headers", (row) => headers(row), "pairs-cell"],
    ["Body", (row) => h("code", { class: "body" }, preview(row)), "body-cell"],
  ], found);
}

// The sections in the order in which they are asked for most.
const SECTIONS = ["properties", "application_properties", "message_annotations", "delivery_annotations", "header", "footer"];

export function headers({ message }) {
  const pairs = SECTIONS.flatMap((section) => (message[section] && typeof message[section] === "object" ? Object.entries(message[section]) : message[section] ? [[section, message[section]]] : []));
  return pairs.length ? h("dl", { class: "pairs" }, pairs.map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, text(value))))) : "–";
}

export function preview({ message }) {
  return `${text(message.body ?? message.encoded ?? "")}${message.body_cut ? "…" : ""}`;
}

function text(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}
