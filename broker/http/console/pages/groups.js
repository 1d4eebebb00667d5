// The message groups of a queue: which consumer has each, and what waits for it.

import { get, nodePath } from "../api.js";
import { h, put, say } from "../dom.js";
import { count, plural } from "../format.js";
import { button, empty, keep, table } from "../page.js";
import { guarded } from "../session.js";
import { later, resetGroup } from "../verbs.js";

const PAGE = 20;
const MOST_OWNERS = 1000;

export function groups(name, place, signal) {
  let offset = 0;
  const summary = h("p", {});
  const filter = h("input", { type: "search", placeholder: "Filter: part of an id, or order-*", "aria-label": "Filter groups by id", spellcheck: "false" });
  const where = h("span", { class: "hint" });
  const list = h("div", {}, empty("Looking…"));
  const refresh = async () => {
    // One more than a page tells whether there is a next one.
    const [told, links] = await Promise.all([
      get(`${nodePath("queue", name)}/groups`, { offset, count: PAGE + 1, filter: filter.value }, signal),
      get("/links", { node: name, role: "consumer", limit: MOST_OWNERS, fields: "identity,container,peer" }, signal),
    ]);
    const owners = new Map(links.items.map((row) => [row.identity, row.container || row.peer]));
    const found = told.groups.slice(0, PAGE);
    if (!found.length && offset > 0) {
      offset = Math.max(0, offset - PAGE);
      await refresh();
      return;
    }
    say(where, found.length ? `groups ${count(offset + 1)} to ${count(offset + found.length)}` : "");
    previous.disabled = offset === 0;
    next.disabled = told.groups.length <= PAGE;
    keep(list, found.length ? shown(name, place, found, owners, refresh) : empty(filter.value ? "No group has this in its id." : "No group has a consumer or waiting messages."), found.map((row) => ({ identity: `${row.group} ${row.link}` })));
  };
  const turn = (by) => {
    offset = Math.max(0, offset + by);
    refresh().catch((fault) => signal.aborted || put(list, empty(fault.message)));
  };
  const previous = button("Previous", () => turn(-PAGE));
  const next = button("Next", () => turn(PAGE));
  previous.disabled = next.disabled = true;
  filter.addEventListener("input", later(() => {
    offset = 0;
    turn(0);
  }, 150));
  return {
    element: h("div", {}, summary, h("div", { class: "controls" }, filter, previous, next, where), list),
    show: (node) => say(summary, `${plural(node.groups, "group")} with a consumer (${node.message_groups}). ${node.stuck_groups ? `${plural(node.stuck_groups, "group")} with ${plural(node.group_stuck_msgs, "message")} wait for their consumers.` : "None waits for its consumer."}`),
    refresh,
  };
}

function shown(name, place, found, owners, again) {
  const reset = (row) => {
    const element = guarded(button("Take away…", async () => (await resetGroup(name, row.group)) && again(), "small"), "manage-write", place);
    element.dataset.id = `${row.group} ${row.link}`;
    return row.link && element;
  };
  return table("Message groups", [
    ["Group", (row) => h("span", { title: row.group }, row.group), "clip"],
    ["Consumer", (row) => h("span", { title: row.link }, row.link ? owners.get(row.link) || row.link : "none"), "clip"],
    ["Waiting", (row) => count(row.waiting), "num"],
    ["Unsettled", (row) => count(row.unsettled), "num"],
    ["State", (row) => (row.ending ? "ending" : row.link ? "owned" : "free")],
    ["", reset, "act"],
  ], found);
}
