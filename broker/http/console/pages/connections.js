// Who is connected, and closing one.

import { get } from "../api.js";
import { h, put } from "../dom.js";
import { ago, count, size } from "../format.js";
import { heading } from "../page.js";
import { cellColumn, guarded } from "../session.js";
import { closeConnection, later, trace } from "../verbs.js";
import { VirtualTable } from "../vtable.js";
import { act } from "./links.js";

export async function show(root, _params, signal) {
  const filter = h("input", { type: "search", placeholder: "Filter by the container's name", "aria-label": "Filter by name", spellcheck: "false" });
  const closed = async (row) => {
    if (await closeConnection(row)) table.reset();
  };
  const table = new VirtualTable({
    label: "Connections",
    unit: "connection",
    signal,
    sort: "name",
    fetch: ({ offset, limit, sort }) => get("/connections", { offset, limit, sort, filter: filter.value }, signal),
    nothing: () => (filter.value ? "No container of that name." : "No connections."),
    columns: [
      { id: "name", title: "Container", sort: "name", kind: "name-cell clip", cell: (row) => row.container || "(no name)" },
      ...cellColumn({ id: "cell", title: "Cell", sort: "cell", num: true, kind: "mid", cell: (row) => String(row.cell) }),
      { id: "peer", title: "From", sort: "peer", kind: "mid", cell: (row) => row.peer },
      { id: "user", title: "User", sort: "user", kind: "wide", cell: (row) => row.user || "–" },
      { id: "opened", title: "Open for", sort: "opened", num: true, cell: (row) => ago(row.opened) },
      { id: "links", title: "Links", sort: "links", num: true, kind: "mid", cell: (row) => count(row.links) },
      { id: "in", title: "In", sort: "messages_in", num: true, kind: "mid", cell: (row) => count(row.messages_in) },
      { id: "out", title: "Out", sort: "messages_out", num: true, kind: "mid", cell: (row) => count(row.messages_out) },
      { id: "transactions", title: "Transactions", sort: "open_transactions", num: true, kind: "wider", cell: (row) => (row.open_transactions ? `${count(row.open_transactions)}${row.oldest_transaction ? `, for ${ago(row.oldest_transaction)}` : ""}` : "–") },
      { id: "uncommitted", title: "Uncommitted", sort: "uncommitted_msgs", num: true, kind: "wider", cell: (row) => (row.uncommitted_msgs ? `${count(row.uncommitted_msgs)}, ${size(row.uncommitted_bytes)}` : "–") },
      { id: "act", title: "", kind: "act two", cell: (row, cell) => {
        cell.row = row;
        if (!cell.querySelector("[data-act]")) put(cell, guarded(act("Trace…", () => trace(cell.row)), "manage-write"), " ", guarded(act("Close…", () => closed(cell.row)), "manage-write"));
      } },
    ],
  });
  filter.addEventListener("input", later(() => table.reset(), 150));
  put(root, h("div", { class: "fill-page" }, heading("Connections"), h("div", { class: "controls" }, filter, table.status), table.scroller));
}
