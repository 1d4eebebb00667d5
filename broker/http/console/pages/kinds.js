// The kinds of a queue: its open transactions, delayed messages, priorities and message groups. Each part is
// shown while the node has something of it.

import { get, nodePath } from "../api.js";
import { h, put, say } from "../dom.js";
import { ago, count, moment, percent, size, until } from "../format.js";
import { button, empty, failed, section, table } from "../page.js";
import { guarded } from "../session.js";
import { cancelDelayed, freeGroup, later } from "../verbs.js";
import { headers, preview } from "./messages.js";

const PAGE = 20;
const MOST_CONSUMERS = 1000;
const LEVELS = 10;

// `place` is the address that rights are asked for: a subscription goes by its topic.
export function kinds(name, place, signal) {
  return [new Transactions(), new DelayedMessages(name, place, signal), new Priorities(), new Groups(name, signal)];
}

class Figures {
  constructor(rows) {
    this.rows = rows;
    this.cells = rows.map(() => h("dd", { class: "num" }, "–"));
    this.element = h("dl", { class: "figures" }, rows.map(([title, , meaning], index) => h("div", {}, h("dt", { title: meaning }, title), this.cells[index])));
  }

  show(node) {
    this.rows.forEach(([, text], index) => say(this.cells[index], text(node)));
  }
}

// A list in pages that is asked for by a button; `ask(offset)` brings [rows, the total or undefined].
class Pages {
  constructor({ label, before, after, ask, shown, nothing, signal, guard }) {
    Object.assign(this, { ask, shown, nothing, signal, offset: 0, opened: false });
    this.list = h("div", { "aria-live": "polite" });
    this.where = h("span", { class: "hint" });
    this.before = button(before, () => this.look(Math.max(0, this.offset - PAGE)));
    this.after = button(after, () => this.look(this.offset + PAGE));
    this.before.disabled = this.after.disabled = true;
    this.buttons = [guard(button(label, () => this.look(0))), this.before, this.after, this.where];
  }

  async look(wanted = this.offset) {
    this.opened = true;
    try {
      const [rows, total] = await this.ask(wanted);
      // The last of a page was cancelled, or has gone: the one before is the last page now.
      if (!rows.length && wanted > 0) return await this.look(Math.max(0, wanted - PAGE));
      this.offset = wanted;
      const last = wanted + rows.length;
      say(this.where, rows.length ? `${count(wanted + 1)} to ${count(last)}${total === undefined ? "" : ` of ${count(total)}`}` : "");
      put(this.list, rows.length ? this.shown(rows) : empty(this.nothing()));
      this.before.disabled = wanted === 0;
      this.after.disabled = total === undefined ? rows.length < PAGE : last >= total;
    } catch (fault) {
      if (!this.signal.aborted) put(this.list, failed(fault, () => this.look(wanted)));
    }
    return undefined;
  }
}

class Transactions {
  constructor() {
    this.figures = new Figures([
      ["Open", (node) => count(node.open_transactions), "Open transactions that have messages of this node"],
      ["Oldest", (node) => ago(node.oldest_transaction), "For how long the oldest of them has been open"],
      ["Uncommitted messages", (node) => count(node.uncommitted_msgs), "Messages that were sent in them: they keep their room, and nobody sees them before the commit"],
      ["Uncommitted size", (node) => size(node.uncommitted_bytes)],
    ]);
    const connections = h("a", { href: "#/connections?sort=transactions" }, "the connections that have transactions open");
    this.element = section("Open transactions", this.figures.element, h("p", { class: "hint" }, "See ", connections, "."));
  }

  show(node) {
    this.element.hidden = !node.open_transactions;
    this.figures.show(node);
  }
}

class DelayedMessages {
  constructor(name, place, signal) {
    const where = `${nodePath("queue", name)}/delayed`;
    this.figures = new Figures([
      ["Waiting", (node) => count(node.delayed_msgs), "Messages that wait for their time; they count in the depth"],
      ["Next due", (node) => until(node.delayed_next), "When the first of them is due, or expires"],
    ]);
    const cancelled = async (row) => (await cancelDelayed(name, row)) && this.pages.look();
    this.pages = new Pages({
      label: "List delayed messages",
      before: "Sooner",
      after: "Later",
      signal,
      guard: (element) => guarded(element, "browse", place),
      ask: async (offset) => {
        const told = await get(where, { offset, count: PAGE }, signal);
        return [told.messages, told.total];
      },
      nothing: () => "No message waits for its time.",
      shown: (rows) => table("Delayed messages", [
        ["Number", (row) => count(row.number), "num"],
        ["Due", (row) => h("time", { datetime: new Date(row.due_ms).toISOString(), title: until(row.due_ms) }, moment(row.due_ms))],
        ["Size", (row) => size(row.bytes), "num"],
        ["Tries", (row) => count(row.delivery_count), "num"],
        ["Headers", (row) => headers(row), "pairs-cell"],
        ["Body", (row) => h("code", { class: "body" }, preview(row)), "body-cell"],
        ["", (row) => guarded(named(button("Cancel…", () => cancelled(row), "small"), `Cancel message ${row.number}…`), "purge", place), "act"],
      ], rows),
    });
    this.element = section("Delayed messages", this.figures.element, h("div", { class: "controls" }, this.pages.buttons), this.pages.list);
  }

  show(node) {
    // A list that somebody reads stays, though its last message has become due.
    this.element.hidden = !node.delayed_msgs && !this.pages.opened;
    this.figures.show(node);
  }
}

class Priorities {
  constructor() {
    this.rows = Array.from({ length: LEVELS }, (_, index) => ({ level: LEVELS - 1 - index, cell: h("span", {}), fill: h("div", { class: "fill" }) }));
    this.about = h("p", { class: "hint" });
    this.element = section("Waiting messages by priority", this.about, table("Waiting messages by priority", [
      ["Priority", (row) => row.level, "num"],
      ["Waiting", (row) => row.cell, "num"],
      ["Share", (row) => h("div", { class: "track", "aria-hidden": "true" }, row.fill), "share-cell"],
    ], this.rows));
  }

  show(node) {
    const levels = node.priority_msgs;
    this.element.hidden = !levels && !node.priority_reserve;
    if (this.element.hidden) return;
    const order = { strict: "The highest priority leaves first.", fair: "Higher priorities get more turns, and none starves." }[node.priority] || "Messages leave first in, first out.";
    const kept = node.priority_reserve
      ? ` ${node.priority_reserve} % of the stop thresholds is kept for senders that state priority ${node.priority_reserve_from} or more.`
      : " No room is kept for high priorities.";
    say(this.about, order + kept);
    this.element.querySelector(".scroll").hidden = !levels;
    if (!levels) return;
    const total = levels.reduce((sum, each) => sum + each, 0);
    for (const { level, cell, fill } of this.rows) {
      say(cell, count(levels[level]));
      fill.style.width = `${percent(levels[level], total)}%`;
    }
  }
}

class Groups {
  constructor(name, signal) {
    this.name = name;
    this.signal = signal;
    this.figures = new Figures([
      ["With a consumer", (node) => count(node.groups), "Groups that a consumer has: their messages go to it alone"],
      ["Waiting groups", (node) => count(node.stuck_groups), "Groups with messages that wait for their consumer while others are served"],
      ["Their messages", (node) => count(node.group_stuck_msgs), "Ready messages that were passed over, for the consumer of their group has no credit or no room"],
    ]);
    const filter = h("input", { type: "search", placeholder: "Part of a group's id, or order-*", "aria-label": "Filter groups by id", spellcheck: "false" });
    const freed = async (row) => (await freeGroup(name, row.group)) && this.pages.look();
    this.pages = new Pages({
      label: "List groups",
      before: "Previous",
      after: "Next",
      signal,
      guard: (element) => guarded(element, "manage-read", name),
      ask: async (offset) => {
        const [told, links] = await Promise.all([get(`${nodePath("queue", name)}/groups`, { offset, count: PAGE, filter: filter.value }, signal), this.consumers()]);
        this.owners = links;
        return [told.groups];
      },
      nothing: () => (filter.value ? "No group of such an id." : "There are no message groups now."),
      shown: (rows) => table("Message groups", [
        ["Group", (row) => h("code", {}, row.group)],
        ["Consumer", (row) => this.owner(row), "clip"],
        ["Waiting", (row) => count(row.waiting), "num"],
        ["Unsettled", (row) => count(row.unsettled), "num"],
        ["State", (row) => (row.ending ? "free once settled" : row.link ? "owned" : "free")],
        ["", (row) => row.link && guarded(named(button("Free…", () => freed(row), "small"), `Free group ${row.group}…`), "manage-write", name), "act"],
      ], rows),
    });
    filter.addEventListener("input", later(() => this.pages.look(0)));
    this.element = section("Message groups", this.figures.element, h("div", { class: "controls" }, filter, this.pages.buttons), this.pages.list);
  }

  async consumers() {
    const query = { node: this.name, role: "consumer", limit: MOST_CONSUMERS, fields: "identity,name,container,peer" };
    const { items } = await get("/links", query, this.signal);
    return new Map(items.map((row) => [row.identity, row]));
  }

  owner(row) {
    const link = this.owners.get(row.link);
    return link ? h("span", { title: `${link.name} of ${link.container} (${link.peer})` }, link.container || link.peer) : row.link || "none";
  }

  show(node) {
    this.element.hidden = !node.message_groups || node.message_groups === "none" || node.kind === "topic";
    this.figures.show(node);
  }
}

// A button that a screen reader tells from those of other rows.
function named(element, label) {
  element.setAttribute("aria-label", label);
  return element;
}
