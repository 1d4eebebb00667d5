// The replicated cell: who owns it, who stands by and how far behind, and the log they share.

import { get } from "../api.js";
import { h, put } from "../dom.js";
import { count, plural } from "../format.js";
import { button, every, failed, heading, keep, section, table } from "../page.js";
import { cells, guarded } from "../session.js";
import { moveCell } from "../verbs.js";

const ASK_MS = 1000;

export async function show(root, _params, signal) {
  // Of several cells, the number of the one that is shown.
  let chosen = cells() ? 0 : undefined;
  const choose = (number) => {
    chosen = number;
    again();
  };
  const all = h("div");
  const cell = h("dl", { class: "facts" });
  const members = h("div");
  const log = h("dl", { class: "facts" });
  const fault = h("div");
  const again = () => look().catch(() => {});
  put(
    root,
    heading("Cluster", guarded(button("Move the cell…", async () => (await moveCell("", chosen)) && again()), "manage-write")),
    fault,
    ...(cells() ? [section("Cells", all)] : []),
    section("Cell", cell),
    section("Members", h("p", { class: "hint" }, "What each member last said of itself; they say so once a second."), members),
    section("Log", log),
  );
  async function look() {
    let status;
    try {
      status = await get("/cluster", chosen === undefined ? {} : { cell: chosen }, signal);
    } catch (reason) {
      if (!signal.aborted) put(fault, failed(reason, again));
      throw reason;
    }
    put(fault);
    facts(cell, [
      ["Name", status.cell],
      ["Owner", `${status.owner || "nobody"}${status.owner && !status.owner_reachable ? ", which can't be reached" : ""}`],
      ["Epoch", count(status.epoch)],
      ["Take-overs", count(status.take_overs)],
      ["Suspended", status.suspended || "no"],
      ["Answered by", status.member],
    ]);
    facts(log, [
      ["State", status.engine.reachable ? "reachable" : "no server can be reached"],
      ["Position", count(status.engine.position)],
      ["Connected to", status.engine.connected || "–"],
      ["Servers", status.engine.servers.join(", ") || "–"],
    ]);
    const rows = status.members.map((each) => ({ ...each, identity: `${each.name} ${each.role}` }));
    keep(members, table("Members", COLUMNS(again, chosen), rows), rows);
    const spread = status.cells.map((each) => ({ ...each, identity: `${each.number} ${each.number === chosen}` }));
    if (spread.length) keep(all, table("Cells", OF_CELLS(choose, chosen), spread), spread);
  }
  every(signal, ASK_MS, look);
}

const OF_CELLS = (choose, chosen) => [
  ["Cell", (row) => String(row.number), "num"],
  ["Owner", (row) => row.owner || "nobody"],
  ["Epoch", (row) => count(row.epoch), "num"],
  ["", (row) => (row.number === chosen ? "shown below" : button("Show", () => choose(row.number), "small")), "act"],
];

const COLUMNS = (again, chosen) => [
  ["Member", (row) => row.name],
  ["Role", (row) => row.role],
  ["Applied", (row) => count(row.applied), "num"],
  ["Behind", (row) => (row.lag_groups ? `${plural(row.lag_groups, "group")}, ${row.lag_s.toFixed(1)} s` : "–"), "num"],
  ["Heard of", (row) => (row.seen_ago_s < 5 ? "now" : `${Math.round(row.seen_ago_s)} s ago`), "num"],
  ["Version", (row) => row.version],
  ["Clients' addresses", (row) => row.addresses.join(", ") || "–"],
  ["Fault", (row) => row.fault || "–"],
  ["", (row) => row.role === "standby" && guarded(button("Make owner…", async () => (await moveCell(row.name, chosen)) && again(), "small"), "manage-write"), "act"],
];

function facts(element, pairs) {
  const text = pairs.flat().join("\n");
  if (element.dataset.key === text) return;
  element.dataset.key = text;
  put(element, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}
