// The broker as a whole: what flows, what fills up, what is stopped and why.

import { get } from "../api.js";
import { picture } from "../circle.js";
import { h, put, say } from "../dom.js";
import { ago, count, percent, plural, rate, size, span } from "../format.js";
import { live } from "../live.js";
import { button, empty, every, failed, heading, keep, nodeLink, section, table } from "../page.js";
import { RateChart } from "../rates.js";
import { cellColumn, cells, guarded } from "../session.js";
import { holdProducers } from "../verbs.js";

const MOST_STOPPED = 20;
const OPEN = "Nothing is stopped: every producer that has something to send may send.";
const FIELDS = "name,kind,flowStopped,flowStoppedBy,flowStoppedSince,depth_msgs,blocked_producers,heldBy";

export async function show(root, _params, signal) {
  const about = h("p", { class: "about" }, " ");
  const bars = ["Memory", "Store", "Temporary"].map((name) => new Bar(name));
  const figures = new Figures();
  const rates = new RateChart();
  const stopped = h("div", {}, empty("Looking…"));
  const deadlocks = h("div", { "aria-live": "polite" });
  const parts = h("div", {});
  put(
    root,
    heading("Overview", guarded(button("Stop all producers…", () => holdProducers(null, true), "danger-quiet"), "manage-write", ">"), guarded(button("Start all producers…", () => holdProducers(null, false)), "manage-write", ">")),
    about,
    deadlocks,
    h("div", { class: "grid two" }, section("Messages a second", rates.element), section("Against the limits", bars.map((bar) => bar.element))),
    section("Now", figures.element),
    cells() > 0 && section("Cells", parts),
    section("Stopped, and why", stopped),
  );
  let stops = null;
  let drawn = "";
  const shown = (broker) => {
    say(about, `${broker.name || "sluice"} ${broker.version}, up ${span(broker.uptime_s)}${broker.flow_control === false ? ". Flow control is switched off." : ""}`);
    bars[0].show(broker.held_bytes, broker.memory_limit_bytes, `process ${size(broker.memory_bytes)}`);
    bars[1].show(broker.store_bytes, broker.store_limit_bytes, storeNote(broker));
    bars[2].show(broker.temp_bytes, broker.temp_limit_bytes, "");
    figures.show(broker);
    rates.add(broker);
    if (broker.cells) keep(parts, table("Cells", CELLS, broker.cells), broker.cells.map(({ cell }) => ({ identity: cell })));
    const found = broker.deadlocks || [];
    const key = JSON.stringify(found.map((each) => [each.nodes, each.connections]));
    if (key !== drawn) {
      drawn = key;
      put(deadlocks, found.length > 0 && warning(found));
    }
    if (stops && broker.stopped_nodes !== stops.nodes) {
      stops.nodes = broker.stopped_nodes;
      stops.again();
    }
  };
  live.on("broker", shown, signal);
  if (live.broker) shown(live.broker);
  else get("/broker", {}, signal).then(shown).catch((fault) => fault.status === 403 && put(about, failed(fault)));
  stops = { nodes: -1, again: every(signal, 5000, () => reasons(stopped, signal)) };
}

async function reasons(element, signal) {
  if (live.broker && !live.broker.stopped_nodes) {
    put(element, empty(OPEN));
    return;
  }
  const query = { sort: "-flowStopped", limit: MOST_STOPPED, fields: [FIELDS, ...cellColumn("cell")].join() };
  const pages = await Promise.all(["/queues", "/topics"].map((where) => get(where, query, signal)));
  const rows = pages.flatMap((page) => page.items).filter((row) => row.flowStopped);
  if (!rows.length) {
    put(element, empty(OPEN));
    return;
  }
  const told = await get("/why", {}, signal);
  const sentences = new Map((told.answers || []).filter((each) => each.subject === "producer").map((each) => [placeOf(each.cell, each.node), each.sentence]));
  put(element, table("Stopped nodes", [
    ["Node", (row) => nodeLink(row.kind || "queue", row.name, row.shown)],
    ...cellColumn(["Cell", (row) => String(row.cell), "num"]),
    ["Stopped by", (row) => row.heldBy ? `operator (${row.heldBy})` : row.flowStoppedBy],
    ["For", (row) => ago(row.flowStoppedSince), "num"],
    ["Depth", (row) => count(row.depth_msgs), "num"],
    ["Blocked", (row) => count(row.blocked_producers), "num"],
    ["Why", (row) => sentences.get(placeOf(row.cell, row.shown || row.name)) || "no producer waits", "why"],
  ], rows));
}

const placeOf = (cell, node) => `${cell ?? ""}/${node}`;

// A cell that doesn't answer says nothing but why.
const CELLS = [
  ["Cell", (row) => String(row.cell), "num"],
  ["State", (row) => (row.error ? h("span", { class: "state stopped" }, row.error) : h("span", { class: "state open" }, "up"))],
  ["Connections", (row) => (row.error ? "–" : count(row.connections)), "num"],
  ["Queues & topics", (row) => (row.error ? "–" : count(row.queues + row.topics)), "num"],
  ["Messages", (row) => (row.error ? "–" : count(row.depth_msgs)), "num"],
  ["In /s", (row) => (row.error ? "–" : rate(row.rate_in)), "num"],
  ["Out /s", (row) => (row.error ? "–" : rate(row.rate_out)), "num"],
  ["Stopped", (row) => (row.error ? "–" : count(row.stopped_nodes)), "num"],
  ["Memory", (row) => (row.error ? "–" : size(row.memory_bytes)), "num"],
];

function warning(found) {
  return h("section", { class: "panel warning" }, h("h2", {}, `${plural(found.length, "deadlock")}: applications that wait for each other`),
    h("p", {}, "The broker can only warn: somebody from outside has to settle, detach or make room."), found.slice(0, 3).map(picture));
}

function storeNote(broker) {
  if (broker.storeState === "none" || !broker.storeState) return "nothing is kept on disk";
  return broker.storeState === "writing" ? plural(broker.store_msgs, "message") : `${broker.storeState}: ${broker.storeReason}`;
}

class Bar {
  constructor(name) {
    this.name = name;
    this.fill = h("div", { class: "fill" });
    this.track = h("div", { class: "track", role: "meter", "aria-label": name, "aria-valuemin": "0", "aria-valuemax": "100" }, this.fill);
    this.text = h("span", { class: "num" });
    this.note = h("p", { class: "hint" }, " ");
    this.element = h("div", { class: "bar" }, h("div", { class: "bar-head" }, h("span", {}, name), this.text), this.track, this.note);
  }

  show(used, limit, note) {
    const part = percent(used, limit);
    this.fill.style.width = `${part}%`;
    this.track.classList.toggle("high", part >= 80);
    this.track.setAttribute("aria-valuenow", part.toFixed(0));
    const text = limit ? `${size(used)} of ${size(limit)}` : `${size(used)}, no limit`;
    this.track.setAttribute("aria-valuetext", text);
    say(this.text, text);
    say(this.note, note || " ");
  }
}

const FIGURES = [
  ["connections", "Connections", "#/connections"],
  ["producers", "Producers", "#/links?role=producer"],
  ["blocked_producers", "Blocked producers"],
  ["consumers", "Consumers", "#/links?role=consumer"],
  ["slow_consumers", "Slow consumers"],
  ["queues", "Queues", "#/nodes"],
  ["topics", "Topics", "#/nodes?kind=topic"],
  ["stopped_nodes", "Stopped nodes"],
  ["depth_msgs", "Messages queued"],
  ["depth_bytes", "Bytes queued"],
  ["promised_msgs", "Promised credit"],
  ["open_transactions", "Open transactions", "#/connections"],
  ["unrouted", "Unrouted messages"],
];

class Figures {
  constructor() {
    this.cells = FIGURES.map(() => h("dd", { class: "num" }, "–"));
    this.element = h("dl", { class: "figures" }, FIGURES.map(([, title, href], index) =>
      h("div", {}, h("dt", {}, href ? h("a", { href }, title) : title), this.cells[index])));
  }

  show(broker) {
    FIGURES.forEach(([name], index) => {
      say(this.cells[index], name.endsWith("bytes") ? size(broker[name]) : count(broker[name]));
      this.cells[index].classList.toggle("warn", /stopped|blocked|slow/.test(name) && broker[name] > 0);
    });
  }
}

