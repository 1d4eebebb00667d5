// The messages of a queue that wait for their time, the next one first, a page at a time; one can be cancelled.

import { get, nodePath } from "../api.js";
import { h, put, say } from "../dom.js";
import { count, size, until } from "../format.js";
import { button, empty, failed, table } from "../page.js";
import { guarded } from "../session.js";
import { cancelDelayed } from "../verbs.js";
import { headers, preview } from "./messages.js";

const PAGE = 20;

export function delayed(name, place, signal) {
  let offset = 0;
  const summary = h("p", {});
  const list = h("div", { "aria-live": "polite" });
  const where = h("span", { class: "hint" });
  const look = async (wanted) => {
    try {
      const told = await get(`${nodePath("queue", name)}/delayed`, { offset: wanted, count: PAGE }, signal);
      const found = told.messages;
      // The last of a page may have become due, or have been cancelled.
      if (!found.length && wanted > 0) {
        await look(Math.max(0, wanted - PAGE));
        return;
      }
      offset = wanted;
      say(where, found.length ? `messages ${count(offset + 1)} to ${count(offset + found.length)} of ${count(told.total)}` : "");
      put(list, found.length ? shown(name, place, found, () => look(offset)) : empty("No message waits for its time."));
      earlier.disabled = offset === 0;
      later.disabled = offset + found.length >= told.total;
    } catch (fault) {
      if (!signal.aborted) put(list, failed(fault, () => look(wanted)));
    }
  };
  const earlier = button("Earlier", () => look(Math.max(0, offset - PAGE)));
  const later = button("Later", () => look(offset + PAGE));
  earlier.disabled = later.disabled = true;
  const element = h("div", {}, summary, h("div", { class: "controls" }, guarded(button("List", () => look(0)), "browse", place), earlier, later, where), list);
  return {
    element,
    show: (node) => say(summary, node.delayed_msgs ? `${count(node.delayed_msgs)} ${node.delayed_msgs === 1 ? "message waits" : "messages wait"}; next due ${until(node.delayed_next)}.` : "No message waits for its time any more."),
  };
}

function shown(name, place, found, again) {
  const cancel = (row) => guarded(button("Cancel…", async () => (await cancelDelayed(name, row)) && again(), "small"), "purge", place);
  return table("Delayed messages", [
    ["Number", (row) => count(row.number), "num"],
    ["Due", (row) => h("time", { datetime: new Date(row.due_ms).toISOString(), title: new Date(row.due_ms).toISOString() }, until(row.due_ms)), "due-cell"],
    ["Size", (row) => size(row.bytes), "num"],
    ["Durable", (row) => (row.durable ? "yes" : "no")],
    ["Tries", (row) => count(row.delivery_count), "num"],
    ["Headers", (row) => headers(row), "pairs-cell"],
    ["Body", (row) => h("code", { class: "body" }, preview(row)), "body-cell"],
    ["", cancel, "act"],
  ], found);
}
