// A stream: what it keeps, and its named readers with what each lacks.

import { get, nodePath } from "../api.js";
import { h, put, say } from "../dom.js";
import { count, plural } from "../format.js";
import { button, empty, keep, table } from "../page.js";
import { guarded } from "../session.js";
import { forgetReader } from "../verbs.js";

const PAGE = 20;

export function stream(name, place, signal) {
  let offset = 0;
  const summary = h("p", {});
  const where = h("span", { class: "hint" });
  const list = h("div", {}, empty("Looking…"));
  const refresh = async () => {
    // One more than a page tells whether there is a next one.
    const told = await get(`${nodePath("queue", name)}/readers`, { offset, count: PAGE + 1 }, signal);
    const found = told.readers.slice(0, PAGE);
    if (!found.length && offset > 0) {
      offset = Math.max(0, offset - PAGE);
      await refresh();
      return;
    }
    say(where, found.length ? `readers ${count(offset + 1)} to ${count(offset + found.length)}` : "");
    previous.disabled = offset === 0;
    next.disabled = told.readers.length <= PAGE;
    keep(list, found.length ? shown(name, place, found, refresh) : empty("No named readers."), found.map((row) => ({ identity: row.reader })));
  };
  const turn = (by) => {
    offset = Math.max(0, offset + by);
    refresh().catch((fault) => signal.aborted || put(list, empty(fault.message)));
  };
  const previous = button("Previous", () => turn(-PAGE));
  const next = button("Next", () => turn(PAGE));
  previous.disabled = next.disabled = true;
  return {
    element: h("div", {}, summary, h("div", { class: "controls" }, previous, next, where), list),
    show: (node) => say(summary, kept(node)),
    refresh,
  };
}

function kept(node) {
  const span = node.stream_msgs ? `, offsets ${count(node.first_offset)} to ${count(node.next_offset - 1)}` : "";
  const held = node.flow_stop_count ? ` Producers wait once the slowest named reader is ${count(node.flow_stop_count)} behind.` : "";
  return `${plural(node.stream_msgs, "message")}${span}.${held}`;
}

function shown(name, place, found, again) {
  const forget = (row) => {
    const element = guarded(button("Forget…", async () => (await forgetReader(name, row.reader)) && again(), "small"), "manage-write", place);
    element.dataset.id = row.reader;
    return !row.link && element;
  };
  return table("Named readers", [
    ["Reader", (row) => h("span", { title: row.reader }, row.reader), "clip"],
    ["Committed offset", (row) => count(row.committed_offset), "num"],
    ["Behind", (row) => count(row.lag_msgs), "num"],
    ["State", (row) => (row.link ? "reading" : "no link")],
    ["", forget, "act"],
  ], found);
}
