// The messages that wait of each priority, the highest first, and the room that is kept for high ones.

import { h, put } from "../dom.js";
import { count, percent, size } from "../format.js";
import { keep, table } from "../page.js";

export function priorities() {
  const reserve = h("p", {});
  const levels = h("div", {});
  return {
    element: h("div", {}, reserve, levels),
    show: (node) => {
      put(reserve, kept(node));
      const msgs = node.priority_msgs;
      keep(levels, msgs ? byLevel(msgs) : h("p", { class: "hint" }, "Messages leave in the order in which they came: priority is none."), []);
    },
  };
}

function kept(node) {
  const { priority_reserve: share, priority_reserve_from: from, flow_stop_count: msgs, flow_stop_size: bytes } = node;
  if (!share) return "No room is kept for high priorities: priority_reserve is none.";
  const room = [msgs > 0 && `${count(Math.floor((msgs * share) / 100))} of ${count(msgs)} messages`, bytes > 0 && `${size(Math.floor((bytes * share) / 100))} of ${size(bytes)}`].filter(Boolean);
  return `${share} % of the stop thresholds is kept for priorities from ${from} on${room.length ? `: ${room.join(", ")}` : ""}.`;
}

function bar(part) {
  const fill = h("div", { class: "fill" });
  fill.style.width = `${part}%`;
  return h("div", { class: "track", "aria-hidden": "true" }, fill);
}

function byLevel(msgs) {
  const most = Math.max(...msgs);
  const rows = msgs.map((waiting, level) => ({ level, waiting })).reverse();
  return table("Messages by priority", [
    ["Priority", (row) => row.level, "num"],
    ["Messages", (row) => count(row.waiting), "num"],
    ["", (row) => bar(percent(row.waiting, most)), "share-cell"],
  ], rows);
}
