// The frame around every page: where we are, how the broker is, and what an operator has stopped.

import { h, put, say } from "./dom.js";
import * as keys from "./keys.js";
import { live } from "./live.js";
import { button, failed } from "./page.js";
import * as cluster from "./pages/cluster.js";
import * as connections from "./pages/connections.js";
import * as links from "./pages/links.js";
import * as log from "./pages/log.js";
import * as node from "./pages/node.js";
import * as nodes from "./pages/nodes.js";
import * as overview from "./pages/overview.js";
import * as policies from "./pages/policies.js";
import * as wiring from "./pages/wiring.js";
import { begin, guarded, watch } from "./session.js";
import { holdProducers } from "./verbs.js";

const PLACES = [
  ["", "Overview", overview],
  ["nodes", "Queues & topics", nodes],
  ["connections", "Connections", connections],
  ["links", "Links", links],
  ["wiring", "Routing", wiring],
  ["policies", "Policies", policies],
  ["cluster", "Cluster", cluster],
  ["log", "Log", log],
];
// Shown only where the broker is a member of a cluster.
const OF_MEMBERS = "cluster";
const NODES = ["queue", "topic", "subscription", "node"];
const main = document.getElementById("main");
let leave = new AbortController();
let first = true;

function route() {
  const [, where = "", ...rest] = location.hash.split("/");
  const [key, search = ""] = where.split("?");
  leave.abort();
  leave = new AbortController();
  live.watch([]);
  const place = NODES.includes(key) ? ["nodes", decode(rest.join("/")), node] : PLACES.find(([each]) => each === key);
  for (const each of document.querySelectorAll("#nav a")) {
    if (place && each.dataset.place === place[0]) {
      each.setAttribute("aria-current", "page");
      each.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else {
      each.removeAttribute("aria-current");
    }
  }
  put(main);
  main.scrollTop = 0;
  document.title = `${place ? place[1] || "Overview" : "Nothing here"} · Sluice`;
  if (!place) {
    put(main, h("h1", { tabindex: "-1" }, "Nothing here"), h("p", { class: "empty" }, "There is no such page. ", h("a", { href: "#/" }, "To the overview")));
  } else {
    show(place[2], { kind: key, name: place[1], query: new URLSearchParams(search) });
  }
  if (!first) main.querySelector("h1")?.focus({ preventScroll: true });
  first = false;
}

function show(page, params) {
  const { signal } = leave;
  Promise.resolve(page.show(main, params, signal)).catch((fault) => {
    if (!signal.aborted) put(main, h("h1", { tabindex: "-1" }, "This page can't be shown"), failed(fault, route));
  });
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// --- how the broker is

const STATES = { connecting: "connecting…", live: "live", lost: "no answer, trying again…", crowded: "too many windows: slower", denied: "you may not see the broker" };

function state(now) {
  const status = document.getElementById("link");
  status.className = `link ${now}`;
  say(status, STATES[now]);
  document.body.classList.toggle("lost", now === "lost");
}

// --- what an operator has stopped

function banners({ holds = [], cluster_suspended: suspended = "", cells = [] }) {
  const place = document.getElementById("banners");
  const absent = cells.filter((each) => each.error).map((each) => `cell ${each.cell}: ${each.error}`);
  const key = [...holds, "", ...absent, "", suspended.replace(/[\d.]+ s$/, "")].join("\n");
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  put(place, holds.length > 0 && held(holds), absent.length > 0 && h("div", { class: "banner", id: "absent" },
    h("p", {}, h("strong", {}, "Not all is shown: "), absent.join("; "))), suspended && h("div", { class: "banner", id: "suspended" },
    h("p", {}, h("strong", {}, "The cell is suspended: "), "its log doesn't answer. Nothing durable is confirmed, and its producers get no credit."),
    h("div", { class: "actions" }, h("a", { href: "#/cluster" }, "To the cluster"))));
}

function held(names) {
  const all = names.includes(">") || names.includes("#");
  const whom = all ? "all producers" : `producers of ${names.slice(0, 4).join(", ")}${names.length > 4 ? ` and ${names.length - 4} more` : ""}`;
  return h("div", { class: "banner", id: "holds" },
    h("p", {}, h("strong", {}, "Stopped by an operator: "), whom),
    h("div", { class: "actions" },
      !all && names.length === 1 && guarded(button(`Start ${names[0]}`, () => holdProducers(names[0], false)), "manage-write", names[0]),
      guarded(button("Start all producers…", () => holdProducers(null, false)), "manage-write", ">")));
}

// --- the looks

const THEMES = ["system", "light", "dark"];

function theme(change) {
  const root = document.documentElement;
  let now = root.dataset.theme || "system";
  if (change) {
    now = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
    if (now === "system") delete root.dataset.theme;
    else root.dataset.theme = now;
    try {
      if (now === "system") localStorage.removeItem("sluice.theme");
      else localStorage.setItem("sluice.theme", now);
    } catch {
      // It holds until the page is loaded anew.
    }
  }
  const toggle = document.getElementById("theme");
  put(toggle, { system: "◐", light: "☀", dark: "☾" }[now]);
  toggle.setAttribute("aria-label", `Colours: ${now}`);
  toggle.title = `Colours: ${now} (t)`;
}

// --- begin

put(document.getElementById("nav"), PLACES.map(([place, title]) => {
  const anchor = h("a", { href: `#/${place}` }, title);
  anchor.dataset.place = place;
  anchor.hidden = place === OF_MEMBERS;
  return anchor;
}));
document.getElementById("theme").addEventListener("click", () => theme(true));
document.getElementById("help").addEventListener("click", () => keys.help());
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
keys.listen({ theme: () => theme(true) });
live.on("state", state);
live.on("broker", (broker) => {
  banners(broker);
  document.querySelector(`#nav a[data-place="${OF_MEMBERS}"]`).hidden = !broker.cluster_role;
});
live.on("back", () => main.querySelector(".failed") && route());
window.addEventListener("hashchange", route);
theme(false);
state("connecting");
watch(() => {
  live.open();
  route();
});
begin().then(() => {
  live.start();
  route();
});
