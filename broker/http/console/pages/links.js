// Producers and consumers, of the whole broker; each can be detached.

import { get } from "../api.js";
import { h, put } from "../dom.js";
import { ago, count, rate } from "../format.js";
import { button, heading, nodeLink } from "../page.js";
import { cellColumn } from "../session.js";
import { detachLink, later } from "../verbs.js";
import { VirtualTable } from "../vtable.js";

export async function show(root, params, signal) {
  let role = params.query.get("role") || "";
  const filter = h("input", { type: "search", placeholder: "Filter by the link's name", "aria-label": "Filter by name", spellcheck: "false" });
  const roles = h("fieldset", { class: "choice" }, h("legend", { class: "hidden" }, "Role"), [["", "all"], ["producer", "producers"], ["consumer", "consumers"]].map(([value, label]) =>
    h("label", {}, h("input", { type: "radio", name: "role", value, checked: value === role, onchange: () => {
      role = value;
      table.reset();
    } }), h("span", {}, label))));
  const detached = async (row) => {
    if (await detachLink(row)) table.reset();
  };
  const table = new VirtualTable({
    label: "Links",
    unit: "link",
    signal,
    sort: "node",
    fetch: ({ offset, limit, sort }) => get("/links", { offset, limit, sort, role, filter: filter.value }, signal),
    nothing: "No link of this kind.",
    columns: [
      { id: "node", title: "Node", sort: "node", kind: "name-cell", cell: (row) => nodeLink("node", row.node) },
      ...cellColumn({ id: "cell", title: "Cell", sort: "cell", num: true, kind: "mid", cell: (row) => String(row.cell) }),
      { id: "role", title: "Role", cell: (row) => row.role },
      { id: "name", title: "Link", sort: "name", kind: "wide clip", cell: (row) => row.name },
      { id: "container", title: "Container", sort: "container", kind: "mid clip", cell: (row) => row.container },
      { id: "credit", title: "Credit", sort: "credit", num: true, cell: (row) => count(row.credit) },
      { id: "unsettled", title: "Unsettled", sort: "unsettled", num: true, kind: "mid", cell: (row) => (row.role === "consumer" ? `${count(row.unsettled)} of ${count(row.window_limit)}` : "–") },
      { id: "rate", title: "Settled /s", sort: "settle_rate", num: true, kind: "wide", cell: (row) => (row.role === "consumer" ? rate(row.settle_rate) : "–") },
      { id: "blocked", title: "Blocked for", sort: "blockedSince", num: true, kind: "mid", cell: (row) => (row.blocked ? ago(row.blockedSince) : "–") },
      { id: "act", title: "", kind: "act", cell: (row, cell) => {
        cell.row = row;
        if (!cell.querySelector("[data-act]")) put(cell, act("Detach…", () => detached(cell.row)));
      } },
    ],
  });
  filter.addEventListener("input", later(() => table.reset(), 150));
  put(root, h("div", { class: "fill-page" }, heading("Links"), h("div", { class: "controls" }, roles, filter, table.status), table.scroller));
}

export function act(text, onclick) {
  const element = button(text, onclick, "small");
  element.dataset.act = "";
  return element;
}
