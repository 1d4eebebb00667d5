// One node: its depth against its thresholds, who sends and who takes, and everything that can be done to it.

import { get, nodePath, path } from "../api.js";
import { DepthChart } from "../chart.js";
import { h, put, say } from "../dom.js";
import { ago, count, rate, size, span } from "../format.js";
import { live } from "../live.js";
import { button, empty, every, failed, heading, keep, load, nodeHref, nodeLink, section, table } from "../page.js";
import { remembered } from "../primer.js";
import * as series from "../series.js";
import { guarded } from "../session.js";
import { detachLink, holdProducers, move, purge, removeNode } from "../verbs.js";
import { delayed } from "./delayed.js";
import { groups } from "./groups.js";
import { messages } from "./messages.js";
import { explained } from "./policies.js";
import { priorities } from "./priorities.js";
import { stream } from "./stream.js";
import { thresholds } from "./thresholds.js";

const MOST_LINKS = 50;
const MOST_HEIRS = 200;
// Of all bound queues the deepest are followed, among which another may become the deepest.
const MOST_BOUND = 5;
// Rights may hide who takes, and the number tells of them all the same.
const UNSEEN = "What takes from here isn't shown to you, or has just come or gone.";

export async function show(root, { kind, name }, signal) {
  if (kind === "node") {
    // A place that knows the name only; the kind is in what holds there.
    const told = await get(`/explain${path(name)}`, {}, signal);
    history.replaceState(null, "", nodeHref(told.kind, name));
    await show(root, { kind: told.kind, name }, signal);
    return;
  }
  let node;
  try {
    node = await get(nodePath(kind, name), {}, signal);
  } catch (fault) {
    if (fault.status !== 404) throw fault;
    put(root, heading(name), empty(`There is no ${kind} of this name any more. `, h("a", { href: "#/nodes" }, "To the list")));
    return;
  }
  const view = new View(kind, name, node);
  put(root, view.element(signal));
  view.show(node);
  live.watch([name]);
  live.on("node", (fresh) => {
    if (fresh.name === name) view.show(fresh);
    else view.part(fresh);
  }, signal);
  live.on("gone", (lost) => lost.name === name && view.gone(), signal);
  remembered(name, signal).then(() => view.draw(), () => {});
  view.follow(signal);
  every(signal, 3000, () => view.refresh(signal));
}

class View {
  constructor(kind, name, node) {
    Object.assign(this, { kind, name, node });
    this.chart = new DepthChart(name);
    // Whose depth is drawn: a topic has none itself, and its line is one for each of its subscriptions.
    this.drawn = name;
    this.parts = new Map();
    this.bound = [];
    // Only a change of state is announced, not each second of it.
    this.said = h("span", { role: "status" });
    this.since = h("span", {});
    this.state = h("p", { class: "node-state" }, this.said, this.since);
    this.figures = FIGURES.map(() => h("dd", { class: "num" }, "–"));
    this.transactions = TRANSACTIONS.map(() => h("dd", { class: "num" }, "–"));
    // Panels that are shown only where the node has such a thing.
    this.kinds = [];
    this.producers = h("div", {}, empty("Looking…"));
    this.consumers = h("div", {}, empty("Looking…"));
    this.why = h("ul", { class: "whys" });
    this.held = guarded(button("", () => this.hold()), "manage-write", name);
  }

  element(signal) {
    const { kind, name } = this;
    // A subscription goes by its topic.
    const place = this.node.topic || name;
    // A stream's messages go by retention alone.
    const keeps = this.node.queue_type === "stream";
    const actions = [
      kind !== "subscription" && this.held,
      kind !== "topic" && !keeps && guarded(button("Move…", async () => (await move(name)) && this.refresh(signal)), "move", place),
      !keeps && guarded(button("Purge…", async () => (await purge(name)) && this.refresh(signal)), "purge", place),
      guarded(button("Delete…", () => this.remove(), "danger-quiet"), "delete", place),
    ];
    this.kinds = this.panels(place, signal);
    const limits = kind === "subscription" ? null : section("Thresholds and times", thresholds(kind, name, signal, (fresh) => this.show(fresh)));
    return [
      h("p", { class: "crumbs" }, h("a", { href: `#/nodes?kind=${kind}` }, `${kind}s`), ` / `, this.node.cell !== undefined && `cell ${this.node.cell} / `),
      heading(name, ...actions),
      this.state,
      section("Depth over time", this.chart.element),
      section("Now", definitions("figures", FIGURES, this.figures)),
      this.kinds.map(({ panel }) => panel),
      section("Why links wait", this.why),
      h("div", { class: "grid two" }, section("Producers", this.producers), section("Consumers", this.consumers)),
      limits,
      kind === "topic" && section("Subscriptions and bound queues", this.heirs(signal)),
      kind !== "topic" && section("Messages", messages(name, place, signal)),
      section("Every setting and its origin", this.explain(signal)),
    ];
  }

  panels(place, signal) {
    const { kind, name } = this;
    const open = { element: definitions("part-figures", TRANSACTIONS, this.transactions), show: (node) => TRANSACTIONS.forEach(([, text], index) => say(this.transactions[index], text(node))) };
    const made = [["Open transactions", (node) => node.open_transactions > 0, open]];
    if (kind !== "topic") {
      made.push(
        ["Delayed messages", (node) => node.delayed_msgs > 0, delayed(name, place, signal)],
        ["Priorities", (node) => node.priority_msgs || node.priority_reserve > 0, priorities()],
        ["Message groups", (node) => node.message_groups !== "none", groups(name, place, signal)],
        ["Stream", (node) => node.queue_type === "stream", stream(name, place, signal)],
      );
    }
    return made.map(([title, applies, part]) => ({ applies, part, panel: section(title, part.element) }));
  }

  show(fresh) {
    Object.assign(this.node, fresh);
    const { node } = this;
    say(this.said, told(node));
    say(this.since, node.flowStopped ? ` For ${span(node.flowStoppedFor)} now.` : "");
    this.state.className = `node-state ${node.heldBy ? "held" : node.flowStopped ? "stopped" : "open"}`;
    say(this.held, node.heldBy ? "Start producers…" : "Stop producers…");
    FIGURES.forEach(([, text], index) => say(this.figures[index], text(node)));
    for (const { applies, part, panel } of this.kinds) {
      panel.hidden = !applies(node) && !panel.contains(document.activeElement);
      if (!panel.hidden) part.show(node);
    }
    if (this.drawn === this.name) this.line(this.kind === "topic" ? {} : node);
  }

  // The lines that stop and resume whose depth is drawn.
  line(node) {
    this.chart.limits = {
      msgs: { stop: node.flow_stop_count, resume: node.flow_resume_count },
      bytes: { stop: node.flow_stop_size, resume: node.flow_resume_size },
    };
    this.draw();
  }

  part(fresh) {
    this.parts.set(fresh.name, fresh);
    if (fresh.name === this.drawn) this.line(fresh);
  }

  // Of a topic the deepest of those that take from it is drawn, the first one that is to stop its publishers.
  follow(signal) {
    const { name, node } = this;
    if (this.kind !== "topic") return;
    const names = [node.deepest, ...this.bound].filter(Boolean);
    live.watch([name, ...names]);
    const depth = (each) => this.parts.get(each)?.depth_msgs ?? -1;
    const wanted = names.reduce((best, each) => (depth(each) > depth(best) ? each : best), names[0] || name);
    if (wanted === this.drawn) return;
    this.drawn = this.chart.name = wanted;
    this.chart.role = wanted === name ? "" : node.subscriptions === 1 ? ", which takes from the topic," : `, the deepest of the ${count(node.subscriptions)} that take from the topic,`;
    this.line(this.parts.get(wanted) || {});
    remembered(wanted, signal).then(() => this.draw(), () => {});
  }

  async findBound(signal) {
    const wanted = { topic: this.name, sort: "-depth_msgs", limit: MOST_BOUND, fields: "name" };
    const { items } = await get("/queues", wanted, signal);
    this.bound = items.map((row) => row.name);
    this.follow(signal);
  }

  draw() {
    this.chart.points = series.of(this.drawn);
    this.chart.draw();
  }

  async refresh(signal) {
    for (const { part, panel } of this.kinds) if (part.refresh && !panel.hidden) part.refresh().catch(() => {});
    if (this.kind === "topic") this.findBound(signal).catch(() => {});
    const query = { node: this.name, limit: MOST_LINKS };
    const [producers, consumers, why] = await Promise.all([
      get("/links", { ...query, role: "producer" }, signal),
      get("/links", { ...query, role: "consumer" }, signal),
      get(`/why${path(this.name)}`, {}, signal),
    ]);
    const again = () => this.refresh(signal);
    keep(this.producers, linkTable("Producers", PRODUCER, producers, again, "No producers."), producers.items);
    keep(this.consumers, linkTable("Consumers", CONSUMER, consumers, again, "No consumers."), consumers.items);
    keep(this.why, (why.answers || []).slice(0, 20).map((each) => h("li", {}, each.sentence)), []);
  }

  gone() {
    say(this.said, `This ${this.kind} has been deleted.`);
    say(this.since, "");
    this.state.className = "node-state stopped";
  }

  async hold() {
    const { heldBy } = this.node;
    if (await holdProducers(this.name, !heldBy)) this.show(await get(nodePath(this.kind, this.name)));
  }

  async remove() {
    if (await removeNode(this.kind, this.name, this.node.depth_msgs)) location.hash = `#/nodes?kind=${this.kind}`;
  }

  heirs(signal) {
    const list = h("div", {});
    const asked = () => Promise.all([
      get("/subscriptions", { limit: MOST_HEIRS, topic: this.name, fields: "name,depth_msgs,consumers,flowStopped" }, signal),
      get("/bindings", { limit: MOST_HEIRS, topic: this.name }, signal),
    ]);
    load(list, asked, ([subscriptions, bindings]) => {
      const own = subscriptions.items.map((row) => ({ ...row, kind: "subscription" }));
      const bound = bindings.items.map((row) => ({ name: row.target, kind: "queue" }));
      const rest = subscriptions.total + bindings.total - own.length - bound.length;
      if (!own.length && !bound.length) return empty(this.node.subscriptions ? UNSEEN : "No subscriptions: messages sent here are dropped.");
      return [table("Subscriptions and bound queues", HEIR, [...own, ...bound]), rest > 0 && h("p", { class: "hint" }, `and ${count(rest)} more`)];
    });
    return list;
  }

  explain(signal) {
    const content = h("div", {});
    const details = h("details", {}, h("summary", {}, "Show"), content);
    details.addEventListener("toggle", async () => {
      if (!details.open) return;
      try {
        put(content, explained(await get(`/explain${path(this.name)}`, {}, signal)));
      } catch (fault) {
        put(content, failed(fault));
      }
    });
    return details;
  }
}

function told(node) {
  const held = node.heldBy ? `Stopped by an operator (${node.heldBy}). ` : "";
  if (!node.flowStopped) return `${held}Open: producers may send.${node.flowEnforced === false ? " Flow control isn't enforced now." : ""}`;
  const others = (node.flowStoppedBy || "").split(", ").filter((each) => each && each !== "operator");
  return others.length || !held ? `${held}Stopped by ${others.join(", ") || "its subscriptions"}.` : held.trim();
}

const FIGURES = [
  ["Messages", (node) => count(node.depth_msgs)],
  ["Size", (node) => size(node.depth_bytes)],
  ["Ready", (node) => count(node.ready_msgs), "Messages that a consumer may get now"],
  ["Unsettled", (node) => count(node.unsettled_msgs), "Messages that were sent to a consumer and have no outcome yet"],
  ["Promised credit", (node) => count(node.promised_msgs), "Credit that producers have and may still use: room is reserved for it"],
  ["Parked", (node) => count(node.parked_msgs), "Messages that came on credit that had been taken back: they wait outside the queue for room"],
  ["In /s", (node) => rate(node.rate_in)],
  ["Out /s", (node) => rate(node.rate_out)],
  ["Peak", (node) => count(node.peak_msgs), "The largest depth there was"],
  ["Times stopped", (node) => count(node.flowStoppedCount)],
  ["Stopped in all", (node) => span(node.flowStoppedSeconds)],
  ["Paged out", (node) => count(node.paged_msgs), "Messages of the backlog that are on disk only"],
  ["Delayed", (node) => count(node.delayed_msgs), "Messages that wait for their time; they count in the depth"],
  ["Unrouted", (node) => (node.kind === "topic" ? count(node.unrouted) : "–")],
];

const TRANSACTIONS = [
  ["Open", (node) => count(node.open_transactions), "Transactions in which messages were sent here, or settled here"],
  ["Oldest open for", (node) => ago(node.oldest_transaction)],
  ["Uncommitted", (node) => count(node.uncommitted_msgs), "Messages that were sent in them: they keep their room, and nobody sees them"],
  ["Uncommitted size", (node) => size(node.uncommitted_bytes)],
];

function definitions(kind, rows, cells) {
  return h("dl", { class: kind }, rows.map(([title, , meaning], index) => h("div", {}, h("dt", { title: meaning }, title), cells[index])));
}

const HEIR = [
  ["Name", (row) => nodeLink(row.kind, row.name, row.shown)],
  ["Kind", (row) => row.kind],
  ["Messages", (row) => count(row.depth_msgs), "num"],
  ["Consumers", (row) => count(row.consumers), "num"],
  ["State", (row) => (row.kind === "queue" ? "–" : row.flowStopped ? "stopped" : "open")],
];
const WHO = ["From", (row) => h("span", { title: `${row.name} of ${row.container}` }, row.container || row.peer), "clip"];
const PRODUCER = [
  WHO,
  ["Credit", (row) => count(row.credit), "num"],
  ["Window", (row) => (row.window ? count(row.window) : "–"), "num"],
  ["Parked", (row) => count(row.parked), "num"],
  ["Blocked for", (row) => (row.blocked ? ago(row.blockedSince) : "–"), "num"],
];
const CONSUMER = [
  WHO,
  ["Credit", (row) => count(row.credit), "num"],
  ["Window", (row) => `${count(row.window_limit)}${row.shut ? " full" : ""}`, "num"],
  ["Unsettled", (row) => count(row.unsettled), "num"],
  ["Settled /s", (row) => rate(row.settle_rate), "num"],
];

function linkTable(title, columns, page, again, nothing) {
  if (!page.items.length) return empty(nothing);
  const detach = ["", (row) => {
    const element = guarded(button("Detach…", async () => (await detachLink(row)) && again(), "small"), "manage-write", row.node);
    element.dataset.id = row.identity;
    return element;
  }, "act"];
  const rest = page.total - page.items.length;
  return [table(title, [...columns, detach], page.items), rest > 0 && h("p", { class: "hint" }, `and ${count(rest)} more, among all `, h("a", { href: "#/links" }, "links"))];
}
