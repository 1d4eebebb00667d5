// How nodes are joined: bindings, bridges, routes to other brokers, channels.

import { ask, get, post } from "../api.js";
import { field, form, note } from "../dialog.js";
import { h, put } from "../dom.js";
import { count, size } from "../format.js";
import { button, empty, heading, load, nodeLink, section, table } from "../page.js";
import { guarded } from "../session.js";
import { bind, unbind } from "../verbs.js";

const MOST = 200;

export async function show(root, _params, signal) {
  const parts = { bindings: h("div"), bridges: h("div"), routes: h("div"), channels: h("div") };
  const look = (what) => load(parts[what], () => get(`/${what}`, { limit: MOST }, signal), (page) => lists[what](page, () => look(what)));
  const after = (verb, what) => async () => (await verb()) && look(what);
  put(
    root,
    heading("Routing", button("Bind…", after(bind, "bindings")), button("Bridge…", after(bridge, "bridges"))),
    section("Bindings", h("p", { class: "hint" }, "A queue takes what is sent to a topic, and what it doesn't set itself."), parts.bindings),
    section("Bridges", h("p", { class: "hint" }, "One node copied into another. A full target stops the source only where both have flow control."), parts.bridges),
    section("Routes", h("p", { class: "hint" }, "To and from other brokers; they are set in the broker's file."), parts.routes),
    section("Channels", h("p", { class: "hint" }, "Topics sent out as datagrams; they are set in the broker's file."), parts.channels),
  );
  await Promise.all(Object.keys(parts).map(look));
}

const lists = {
  bindings: (page, again) => shown(page, "No queue is bound to a topic.", "Bindings", [
    ["Topic", (row) => nodeLink("topic", row.source)],
    ["Queue", (row) => nodeLink("queue", row.target)],
    ["", (row) => guarded(button("Unbind…", async () => (await unbind(row)) && again(), "small"), "manage-write", row.source), "act"],
  ]),
  bridges: (page, again) => shown(page, "There is no bridge.", "Bridges", [
    ["Name", (row) => row.name],
    ["From", (row) => nodeLink("node", row.from)],
    ["To", (row) => nodeLink("node", row.to)],
    ["Selector", (row) => h("code", {}, row.selector || "–")],
    ["State", (row) => [row.state, row.reason && `: ${row.reason}`]],
    ["Copied", (row) => count(row.copied), "num"],
    ["", (row) => (row.configured ? h("span", { class: "hint" }, "from the file") : guarded(button("Delete…", async () => (await unbridge(row)) && again(), "small"), "manage-write", row.from)), "act"],
  ]),
  routes: (page) => shown(page, "There is no route.", "Routes", [
    ["Name", (row) => row.name],
    ["Direction", (row) => `${row.local} ${row.direction === "in" ? "←" : "→"} ${row.remote}`],
    ["Broker", (row) => row.url],
    ["State", (row) => [row.state, row.lastError && `: ${row.lastError}`]],
    ["Forwarded", (row) => count(row.forwarded), "num"],
    ["Backlog", (row) => count(row.backlog), "num"],
  ]),
  channels: (page) => shown(page, "There is no channel.", "Channels", [
    ["Topic", (row) => nodeLink("topic", row.topic)],
    ["To", (row) => row.to],
    ["State", (row) => row.state],
    ["Sent", (row) => count(row.sent), "num"],
    ["Backlog", (row) => size(row.backlog_bytes), "num"],
    ["Dropped", (row) => count(row.dropped), "num"],
  ]),
};

function shown(page, nothing, caption, columns) {
  if (!page.items.length) return empty(nothing);
  const rest = page.total - page.items.length;
  return [table(caption, columns, page.items), rest > 0 && h("p", { class: "hint" }, `and ${count(rest)} more`)];
}

function bridge() {
  const text = () => h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const [from, to, selector] = [text(), text(), text()];
  return form("Bridge", {
    content: [field("From", from), field("To", to), field("Selector", selector, "Only messages it is true for; empty for all.")],
    action: "Create bridge",
    act: async () => {
      await post("/bridges", { from: from.value, to: to.value, ...(selector.value && { selector: selector.value }) });
      note(`Bridge from ${from.value} to ${to.value}`);
      return true;
    },
  });
}

function unbridge(row) {
  return form("Delete bridge", {
    content: h("p", {}, `${row.from} is no longer copied into ${row.to}; what is there stays.`),
    action: "Delete bridge",
    danger: true,
    act: async () => {
      await ask("DELETE", "/bridges", { body: { from: row.from, to: row.to } });
      note(`Deleted bridge ${row.name}`);
      return true;
    },
  });
}
