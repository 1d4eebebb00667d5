// Every queue, topic or subscription: sorted, filtered and paged by the broker, with its depth as it moves.

import { get, plurals } from "../api.js";
import { h, put } from "../dom.js";
import { count, rate, size } from "../format.js";
import { live } from "../live.js";
import { button, heading, nodeHref, nodeLink } from "../page.js";
import { prime } from "../primer.js";
import { cellColumn } from "../session.js";
import * as spark from "../spark.js";
import { create, holdPattern, later } from "../verbs.js";
import { VirtualTable } from "../vtable.js";

const FIELDS = [
  "name", "kind", "flowStopped", "flowStoppedBy", "heldBy", "depth_msgs", "depth_bytes", "flow_stop_count",
  "rate_in", "rate_out", "promised_msgs", "producers", "blocked_producers", "consumers",
];

export async function show(root, params, signal) {
  let kind = plurals[params.query.get("kind")] ? params.query.get("kind") : "queue";
  const filter = h("input", { type: "search", placeholder: "Filter: part of a name, or orders.*", "aria-label": "Filter by name", spellcheck: "false", value: params.query.get("filter") || "" });
  const kinds = h("fieldset", { class: "choice" }, h("legend", { class: "hidden" }, "Kind"), Object.keys(plurals).map((each) =>
    h("label", {}, h("input", { type: "radio", name: "kind", value: each, checked: each === kind, onchange: () => choose(each) }), h("span", {}, plurals[each]))));
  const table = new VirtualTable({
    label: "Queues & topics",
    unit: "node",
    columns: columns(),
    sort: "name",
    signal,
    fetch: ({ offset, limit, sort }) => get(`/${plurals[kind]}`, { offset, limit, sort, filter: filter.value, fields: [...FIELDS, ...cellColumn("cell")].join(",") }, signal),
    nothing: () => (filter.value ? `No ${kind} has “${filter.value}” in its name.` : `There is no ${kind} yet.`),
    onrows: (rows) => watch(rows),
  });
  const redraw = (name) => table.update((row) => row.name === name, {});
  const watch = (rows) => {
    const names = rows.map((row) => row.name);
    live.watch(names);
    prime(names, redraw, signal);
  };
  const choose = (wanted) => {
    kind = wanted;
    remember(kind, filter.value);
    table.reset();
  };
  const sought = later(() => {
    remember(kind, filter.value);
    table.reset();
  }, 150);
  filter.addEventListener("input", sought);
  const made = async () => {
    const node = await create(kind === "topic" ? "topic" : "queue");
    if (node) location.hash = nodeHref(node.kind, node.name);
  };
  put(
    root,
    h("div", { class: "fill-page" },
      heading("Queues & topics", button("Create…", made, "primary"), button("Stop by pattern…", () => holdPattern(filter.value), "danger-quiet")),
      h("div", { class: "controls" }, kinds, filter, table.status),
      table.scroller),
  );
  live.on("node", (node) => {
    table.update((row) => row.name === node.name, node);
  }, signal);
}

function remember(kind, filter) {
  const search = new URLSearchParams({ kind, ...(filter && { filter }) });
  history.replaceState(null, "", `#/nodes?${search}`);
}

function columns() {
  return [
    { id: "name", title: "Name", sort: "name", kind: "name-cell", cell: (row) => nodeLink(row.kind || "queue", row.name, row.shown) },
    ...cellColumn({ id: "cell", title: "Cell", sort: "cell", num: true, kind: "mid", cell: (row) => String(row.cell) }),
    { id: "state", title: "State", sort: "flowStopped", kind: "state-cell", cell: state },
    { id: "trend", title: "Depth, 90 s", kind: "wide trend-cell", cell: trend },
    { id: "depth", title: "Depth", sort: "depth_msgs", num: true, cell: (row) => count(row.depth_msgs) },
    { id: "stop", title: "Stop at", sort: "flow_stop_count", num: true, kind: "wide", cell: (row) => (row.flow_stop_count ? count(row.flow_stop_count) : "–") },
    { id: "bytes", title: "Size", sort: "depth_bytes", num: true, kind: "wide", cell: (row) => size(row.depth_bytes) },
    { id: "in", title: "In /s", sort: "rate_in", num: true, kind: "mid", cell: (row) => rate(row.rate_in) },
    { id: "out", title: "Out /s", sort: "rate_out", num: true, kind: "mid", cell: (row) => rate(row.rate_out) },
    { id: "promised", title: "Promised", sort: "promised_msgs", num: true, kind: "wide", cell: (row) => count(row.promised_msgs) },
    { id: "producers", title: "Producers", sort: "producers", num: true, kind: "mid", cell: (row) => count(row.producers) },
    { id: "blocked", title: "Blocked", sort: "blocked_producers", num: true, kind: "mid", cell: (row) => count(row.blocked_producers) },
    { id: "consumers", title: "Consumers", sort: "consumers", num: true, kind: "mid", cell: (row) => count(row.consumers) },
  ];
}

export function state(row) {
  if (row.heldBy) return h("span", { class: "state held", title: `held by ${row.heldBy}` }, "operator");
  if (row.flowStopped) return h("span", { class: "state stopped", title: row.flowStoppedBy }, "stopped");
  return h("span", { class: "state open" }, "open");
}

function trend(row, cell) {
  let canvas = cell.firstChild;
  if (!(canvas instanceof HTMLCanvasElement)) {
    canvas = spark.make();
    put(cell, canvas);
  }
  // A topic's depth is a sum, and its line is one that each of its subscriptions has for itself.
  spark.draw(canvas, row.name, row.kind === "topic" ? 0 : row.flow_stop_count);
}
