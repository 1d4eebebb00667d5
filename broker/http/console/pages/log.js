// What happened lately, as the broker's events tell it, and how much its log says.

import { ask, get } from "../api.js";
import { field, note } from "../dialog.js";
import { h, put, say } from "../dom.js";
import { count } from "../format.js";
import { empty, every, failed, heading, load, nodeLink, section } from "../page.js";
import { cells } from "../session.js";

const MOST = 200;
const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];
// Told of every event; what is left is its own.
const COMMON = new Set(["v", "seq", "time", "mono_ns", "event", "node", "skipped", "cell"]);
const WEIGHTY = new Set(["stopped", "deadlock", "rejected", "dropped", "slow_consumer", "store_failed", "store_full"]);

export async function show(root, _params, signal) {
  const filter = h("input", { type: "search", placeholder: "Filter: a kind or a node", "aria-label": "Filter events", spellcheck: "false" });
  const list = h("div", { class: "events" }, empty("Looking…"));
  const status = h("p", { class: "status", role: "status" });
  const levels = h("div", {});
  let last = "";
  let events = [];
  const shown = () => {
    const wanted = filter.value.trim().toLowerCase();
    const found = events.filter((each) => !wanted || each.event.includes(wanted) || (each.node || "").toLowerCase().includes(wanted));
    put(list, found.length ? lines(found) : empty(wanted ? "No such event among the last." : "Nothing has happened yet."));
    say(status, `${count(found.length)} of the last ${count(events.length)} events`);
  };
  put(
    root,
    heading("Log"),
    section("Events", h("div", { class: "controls" }, filter, status), list),
    section("Levels of the broker's log", h("p", { class: "hint" }, "Changes hold until the settings are read again."), levels),
  );
  filter.addEventListener("input", shown);
  every(signal, 3000, async () => {
    try {
      events = (await get("/events", { count: MOST, samples: false }, signal)).reverse();
    } catch (fault) {
      if (!signal.aborted && [403, 404].includes(fault.status)) put(list, failed(fault));
      throw fault;
    }
    const key = `${events.length} ${events[0]?.seq} ${events[0]?.time}`;
    if (key !== last) shown();
    last = key;
  });
  await load(levels, () => get("/log-levels", {}, signal), (told) => editor(told.levels));
}

function lines(events) {
  return h("ol", {}, events.map((each) =>
    h("li", { class: WEIGHTY.has(each.event) ? "weighty" : undefined },
      h("time", { datetime: each.time }, new Date(each.time).toLocaleTimeString()),
      h("span", { class: "event" }, each.event.replaceAll("_", " ")),
      each.node ? nodeLink("node", each.node) : h("span", {}),
      h("span", { class: "origin" }, cells() > 0 && h("span", { class: "of-cell" }, `cell ${each.cell}  `), Object.entries(each).filter(([key, value]) => !COMMON.has(key) && value !== null && value !== "").map(([key, value]) => `${key}=${typeof value === "object" ? JSON.stringify(value) : value}`).join("  ")))));
}

function editor(levels) {
  return h("div", { class: "fields" }, Object.entries(levels).map(([logger, level]) => {
    const known = LEVELS.includes(level.toUpperCase()) ? LEVELS : [...LEVELS, level.toUpperCase()];
    const choice = h("select", {}, known.map((each) => h("option", { value: each, selected: each === level.toUpperCase() }, each.toLowerCase())));
    choice.addEventListener("change", async () => {
      try {
        await ask("PUT", "/log-levels", { body: { levels: { [logger]: choice.value.toLowerCase() } } });
        note(`${logger} writes from ${choice.value.toLowerCase()} on`);
      } catch (fault) {
        note(fault.message, "fault");
      }
    });
    return field(logger, choice);
  }));
}
