// The keyboard: single keys and "g" followed by one, never while something is being typed.

import { h } from "./dom.js";
import { open } from "./dialog.js";

export const KEYS = [
  ["?", "This list"],
  ["g o", "Overview"],
  ["g n", "Queues & topics"],
  ["g c", "Connections"],
  ["g l", "Links"],
  ["g p", "Policies"],
  ["g w", "Routing"],
  ["g e", "Log and events"],
  ["/", "Filter the list"],
  ["t", "Light, dark or as the system says"],
  ["↑ ↓", "Previous or next row, when one has the focus"],
  ["Enter", "Open the row"],
  ["← →", "Step through the chart, when it has the focus"],
  ["Esc", "Close a dialog, leave the filter"],
];
const PLACES = { o: "#/", n: "#/nodes", c: "#/connections", l: "#/links", p: "#/policies", w: "#/wiring", e: "#/log" };
const LEADER_MS = 1500;

export function listen(actions) {
  let leader = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event) || document.querySelector("dialog[open]")) return;
    const led = performance.now() - leader < LEADER_MS;
    leader = 0;
    if (led && PLACES[event.key]) location.hash = PLACES[event.key];
    else if (event.key === "g") leader = performance.now();
    else if (event.key === "?") help();
    else if (event.key === "t") actions.theme();
    else if (event.key === "/") focusFilter(event);
  });
}

export function help() {
  return open("Keyboard", (close) => [
    h("dl", { class: "keys" }, KEYS.map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])),
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => close() }, "Close")),
  ]);
}

function isTyping(event) {
  const target = event.target;
  if (event.key === "Escape" && target.type === "search") target.blur();
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

function focusFilter(event) {
  const filter = document.querySelector("main input[type=search]");
  if (!filter) return;
  event.preventDefault();
  filter.focus();
  filter.select();
}
