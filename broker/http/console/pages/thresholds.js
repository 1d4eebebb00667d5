// A node's limits, changed in place: what a change would do is shown before it is made, and a change that
// somebody else made meanwhile is not undone unseen.

import { ask, nodePath, path, post, get } from "../api.js";
import { field, note } from "../dialog.js";
import { h, put } from "../dom.js";
import { count, plural, size } from "../format.js";
import { button, failed } from "../page.js";
import { guarded } from "../session.js";
import { later, scalar } from "../verbs.js";
import { plain } from "./policies.js";

const SETTINGS = ["flow_stop_count", "flow_resume_count", "max_count", "flow_stop_size", "flow_resume_size", "max_size", "producer_window", "consumer_flow_limit", "consumer_timeout", "redelivery_delay"];
// Those that a node shows in milliseconds.
const TIMES = ["consumer_timeout", "redelivery_delay"];
const attribute = (key) => (TIMES.includes(key) ? `${key}_ms` : key);

export function thresholds(kind, name, signal, onchange) {
  const root = h("div", {});
  const begin = async () => {
    try {
      const [{ data, etag }, told] = await Promise.all([ask("GET", nodePath(kind, name), { signal }), get(`/explain${path(name)}`, {}, signal)]);
      const origins = new Map(told.settings.map((row) => [row.name, row.origin]));
      put(root, editor({ kind, name, node: data, etag, origins, onchange, begin }));
    } catch (fault) {
      if (!signal.aborted) put(root, failed(fault, begin));
    }
  };
  begin();
  return root;
}

function editor({ kind, name, node, etag, origins, onchange, begin }) {
  const inputs = new Map(SETTINGS.map((key) => [key, h("input", { type: "text", value: shown(key, node[attribute(key)]), autocomplete: "off", spellcheck: "false", inputmode: key.endsWith("size") || TIMES.includes(key) ? "text" : "numeric" })]));
  const outcome = h("div", { class: "outcome", role: "status" }, h("p", { class: "hint" }, "Change a value to see what it would do."));
  const apply = guarded(h("button", { type: "submit", class: "primary", disabled: true }, "Apply"), "manage-write", name);
  const reset = button("Reset", begin);
  const taken = new Set();

  const changes = () => {
    const wanted = {};
    for (const [key, input] of inputs) {
      if (taken.has(key)) wanted[key] = null;
      else if (input.value.trim() !== shown(key, node[attribute(key)])) wanted[key] = input.value.trim() === "" ? null : scalar(input.value);
    }
    return wanted;
  };
  const preview = later(async () => {
    const wanted = changes();
    apply.disabled = true;
    if (!Object.keys(wanted).length) {
      put(outcome, h("p", { class: "hint" }, "Nothing is changed."));
      return;
    }
    try {
      put(outcome, effect(await post("/effect", { name, arguments: wanted })));
      apply.disabled = false;
    } catch (fault) {
      put(outcome, h("p", { class: "problem" }, fault.message));
    }
  });
  const submitted = async (event) => {
    event.preventDefault();
    apply.disabled = true;
    try {
      const { data } = await ask("PATCH", nodePath(kind, name), { body: changes(), etag });
      note(`Changed ${name}`);
      if (data) onchange(data);
      begin();
    } catch (fault) {
      put(outcome, h("p", { class: "problem", role: "alert" }, fault.message), [409, 412].includes(fault.status) && button("Load the present values", begin));
    }
  };
  const back = (key) => {
    taken.add(key);
    inputs.get(key).disabled = true;
    inputs.get(key).value = "as the policy says";
    preview();
  };
  for (const input of inputs.values()) input.addEventListener("input", preview);
  return h("form", { class: "thresholds", onsubmit: submitted },
    h("div", { class: "fields" }, SETTINGS.map((key) => {
      const origin = origins.get(attribute(key)) || "";
      const own = origin.startsWith("argument");
      const element = field(key, inputs.get(key), origin);
      if (own) element.append(h("button", { type: "button", class: "small", onclick: () => back(key), "aria-label": `Take back ${key}` }, "Take back"));
      return element;
    })),
    outcome,
    h("div", { class: "buttons" }, reset, apply));
}

function shown(key, value) {
  if (value === undefined || value === null) return "";
  if (TIMES.includes(key)) return duration(value);
  return key.endsWith("size") && value > 0 ? exact(value) : String(value);
}

// A time in the largest unit in which it is a whole number.
function duration(ms) {
  if (ms === 0) return "0";
  const [of, unit] = [[3600000, "h"], [60000, "min"], [1000, "s"], [1, "ms"]].find(([each]) => ms % each === 0);
  return `${ms / of} ${unit}`;
}

// A size in the largest unit in which it is a whole number.
function exact(bytes) {
  const units = ["B", "KB", "MB", "GB"];
  let unit = 0;
  let value = bytes;
  while (value % 1024 === 0 && unit < 3) {
    value /= 1024;
    unit += 1;
  }
  return unit === 0 ? String(value) : `${value} ${units[unit]}`;
}

function effect({ settings_before: before, settings_after: after, changed, gate_before: was, gate_after: becomes, revoked_msgs: revoked }) {
  return [
    h("p", { class: "good" }, GATES[`${was} ${becomes}`] || `${was}, then ${becomes}.`, revoked > 0 && ` ${plural(revoked, "credit")} would be taken back.`),
    changed.length
      ? h("ul", { class: "changes" }, changed.map((key) => h("li", {}, h("code", {}, key), ` ${value(key, before[key])} → ${value(key, after[key])}`)))
      : h("p", { class: "hint" }, "No effective setting changes."),
  ];
}

const GATES = {
  "open stopped": "Producers would be stopped at once.",
  "stopped open": "Producers would be started at once.",
  "open open": "Producers would go on as they are.",
  "stopped stopped": "Producers would stay stopped.",
};

function value(key, raw) {
  if (typeof raw !== "number") return plain(raw);
  if (key.endsWith("_ms")) return duration(raw);
  return /size|bytes|memory/.test(key) ? size(raw) : count(raw);
}
