// What an operator can do, each behind a dialog that says what it will do first.

import { ask, hold, nodePath, path, post, remove } from "./api.js";
import { field, form, note } from "./dialog.js";
import { h, say } from "./dom.js";
import { count, plural, size, until } from "./format.js";

const ASK_MS = 250;

// Stop or start the producers of a name, a pattern, or of all where the target is null.
export async function holdProducers(target, stop, what = target) {
  const title = stop ? "Stop producers" : "Start producers";
  const whom = target === null ? "every producer of this broker" : `the producers of ${what}`;
  const text = stop
    ? `Credit is taken back from ${whom}, and none is given until they are started again, also after a restart and at nodes to come. Consumers go on.`
    : `Credit is given again to ${whom}, as far as thresholds and budgets allow.`;
  return form(target === null ? `${title}: all` : title, {
    content: h("p", {}, text),
    action: target === null ? `${stop ? "Stop" : "Start"} all producers` : title,
    danger: stop,
    act: async () => {
      const done = await hold(target, stop);
      const nodes = Array.isArray(done.nodes) ? plural(done.nodes.length, "node") : "";
      note(`${stop ? "Stopped" : "Started"}: ${target === null ? "all producers" : what}${nodes ? ` (${nodes})` : ""}`);
      return true;
    },
  });
}

export async function holdPattern(text) {
  const target = h("input", { type: "text", required: true, value: text ? `${text.replace(/[*>#.]+$/, "")}.>` : "", autocomplete: "off", spellcheck: "false", placeholder: "orders.>" });
  const way = h("select", {}, h("option", { value: "stop" }, "Stop producers"), h("option", { value: "start" }, "Start producers"));
  return form("Producers by pattern", {
    content: [field("What to do", way), field("Name or pattern", target, "* is one word, > or # the rest; it holds for nodes to come as well.")],
    action: "Apply",
    act: async () => {
      const { nodes } = await hold(target.value, way.value === "stop");
      note(`${way.value === "stop" ? "Stopped" : "Started"}: ${target.value} (${plural(nodes.length, "node")})`);
      return true;
    },
  });
}

export async function purge(name) {
  const text = h("p", { role: "status" }, "Counting…");
  const where = `${nodePath("queue", name)}/purge`;
  return form(`Purge ${name}`, {
    content: text,
    action: "Purge",
    danger: true,
    ready: (submit) => {
      submit.disabled = true;
      post(where, { dry_run: true }).then(
        ({ purged }) => {
          say(text, purged ? `${plural(purged, "message")} that no consumer holds will be dropped. This can't be undone.` : "There is no message that no consumer holds: nothing to purge.");
          say(submit, purged ? `Purge ${plural(purged, "message")}` : "Purge");
          submit.disabled = !purged;
        },
        (fault) => say(text, fault.message),
      );
    },
    act: async () => {
      const { purged } = await post(where, { dry_run: false });
      note(`Purged ${plural(purged, "message")} of ${name}`);
      return true;
    },
  });
}

export async function cancelDelayed(name, row) {
  return form(`Cancel a message of ${name}`, {
    content: h("p", {}, `Message ${count(row.number)} (${size(row.bytes)}), due ${until(row.due_ms)}, is dropped and never delivered. This can't be undone.`),
    action: "Drop the message",
    danger: true,
    act: async () => {
      await remove(`${nodePath("queue", name)}/delayed/${row.number}`);
      note(`Cancelled message ${count(row.number)} of ${name}`);
      return true;
    },
  });
}

export async function resetGroup(name, group) {
  return form("Take a group from its consumer", {
    content: h("p", {}, `The next message of group ${group} may go to another consumer of ${name}, once its consumer has settled those that it holds.`),
    action: "Take away",
    danger: true,
    act: async () => {
      const { free } = await post(`${nodePath("queue", name)}/groups/reset`, { group });
      note(free ? `Group ${group} is free` : `Group ${group} will be free once its consumer has settled what it holds`);
      return true;
    },
  });
}

export async function forgetReader(name, reader) {
  return form("Forget a reader", {
    content: h("p", {}, `Producers of ${name} wait for ${reader} no more, and whoever reads as ${reader} again begins anew.`),
    action: "Forget",
    danger: true,
    act: async () => {
      await remove(`${nodePath("queue", name)}/readers/${encodeURIComponent(reader)}`);
      note(`Reader ${reader} is forgotten`);
      return true;
    },
  });
}

export async function move(name) {
  const target = h("input", { type: "text", required: true, autocomplete: "off", spellcheck: "false" });
  const most = h("input", { type: "number", min: "0", placeholder: "all" });
  const preview = h("p", { role: "status", class: "preview" }, "Name the queue that the messages go to.");
  const where = `${nodePath("queue", name)}/move`;
  const wish = (dryRun) => ({ target: target.value, count: Number(most.value) || 0, dry_run: dryRun });
  let button;
  const look = later(async () => {
    button.disabled = true;
    if (!target.value) return say(preview, "Name the queue that the messages go to.");
    try {
      const { moved } = await post(where, wish(true));
      say(preview, moved ? `The ${moved === 1 ? "oldest message goes" : `${count(moved)} oldest messages go`} to ${target.value} as that has room.` : "There is no message to move.");
      button.disabled = !moved;
    } catch (fault) {
      say(preview, fault.message);
    }
    return undefined;
  });
  target.addEventListener("input", look);
  most.addEventListener("input", look);
  return form(`Move messages of ${name}`, {
    content: [field("To queue", target), field("How many", most, "The oldest go first; leave it empty for all."), preview],
    action: "Move",
    ready: (submit) => {
      button = submit;
      submit.disabled = true;
    },
    act: async () => {
      const { moved } = await post(where, wish(false));
      note(`Moving ${plural(moved, "message")} from ${name} to ${target.value}`);
      return true;
    },
  });
}

export async function removeNode(kind, name, depth) {
  const typed = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const lost = depth ? ` with ${plural(depth, "message")}` : "";
  return form(`Delete ${kind} ${name}`, {
    content: [h("p", {}, `The ${kind}${lost} is removed and its links are detached. This can't be undone.`), field("Type its name to confirm", typed)],
    action: "Delete",
    danger: true,
    ready: (submit) => {
      submit.disabled = true;
      typed.addEventListener("input", () => {
        submit.disabled = typed.value !== name;
      });
    },
    act: async () => {
      await remove(nodePath(kind, name));
      note(`Deleted ${kind} ${name}`);
      return true;
    },
  });
}

const LIMITS = [
  ["max_count", "messages, e.g. 1000"],
  ["flow_stop_count", "80 % of max_count"],
  ["flow_resume_count", "70 % of max_count"],
  ["max_size", "e.g. 100 MB"],
];

export async function create(kind = "queue") {
  const choice = h("select", {}, ["queue", "topic"].map((each) => h("option", { value: each, selected: each === kind }, each)));
  const name = h("input", { type: "text", required: true, autofocus: true, maxlength: "255", autocomplete: "off", spellcheck: "false" });
  const durable = h("input", { type: "checkbox" });
  const limits = LIMITS.map(([key, hint]) => [key, h("input", { type: "text", placeholder: hint, autocomplete: "off", "aria-label": key })]);
  const more = h("textarea", { rows: "3", spellcheck: "false", placeholder: "dispatch = adaptive\noverflow = page" });
  return form("Create", {
    content: [
      h("div", { class: "row" }, field("Kind", choice), field("Name", name)),
      h("label", { class: "check" }, durable, " Durable: it survives a restart"),
      h("fieldset", { class: "limits" }, h("legend", {}, "Thresholds; what is left empty follows the policies"), limits.map(([key, input]) => field(key, input))),
      field("Other arguments", more, "One a line: name = value"),
    ],
    action: "Create",
    act: async () => {
      const given = limits.filter(([, input]) => input.value.trim()).map(([key, input]) => [key, scalar(input.value)]);
      const body = { name: name.value, arguments: { ...Object.fromEntries(given), ...lines(more.value) } };
      if (durable.checked) body.durable = true;
      await post(choice.value === "queue" ? "/queues" : "/topics", body);
      note(`Created ${choice.value} ${name.value}`);
      return { kind: choice.value, name: name.value };
    },
  });
}

export async function closeConnection(row) {
  return form("Close connection", {
    content: [
      h("p", {}, `The connection ${row.identity} of ${row.container || "an unnamed client"} (${row.peer}) is closed. What it holds unsettled goes to others; most clients connect again by themselves.`),
    ],
    action: "Close connection",
    danger: true,
    act: async () => {
      await remove(`/connections${path(row.identity)}`, { cell: row.cell });
      note(`Closed connection ${row.identity}`);
      return true;
    },
  });
}

export async function trace(row) {
  const frames = h("input", { type: "number", min: "1", value: "1000" });
  const seconds = h("input", { type: "number", min: "1", value: "60" });
  return form("Trace frames", {
    content: [
      h("p", {}, `The AMQP frames of connection ${row.identity} (${row.peer}) are written to the broker's log for a while, without message bodies.`),
      h("div", { class: "limits" }, field("Frames at most", frames), field("Seconds at most", seconds)),
    ],
    action: "Trace",
    act: async () => {
      await post("/trace", { connection: row.identity, frames: Number(frames.value), seconds: Number(seconds.value) }, { cell: row.cell });
      note(`Tracing connection ${row.identity}`);
      return true;
    },
  });
}

// Have a standby own the cell; without a name the one that comes next. Of several cells `cell` is its number.
export async function moveCell(member, cell) {
  return form(member ? `Make ${member} the owner` : "Move the cell", {
    content: h("p", {}, `${member || "The standby that has come farthest"} owns the cell from then on. All connections are closed, this page's too; clients connect again, and what they hold unsettled is delivered anew.`),
    action: "Move the cell",
    danger: true,
    act: async () => {
      const done = await post("/cluster/move", { member }, cell === undefined ? {} : { cell });
      note(`The cell goes to ${done.member}`);
      return true;
    },
  });
}

export async function detachLink(row) {
  return form("Detach link", {
    content: h("p", {}, `The ${row.role}'s link ${row.name} at ${row.node} of ${row.container || "an unnamed client"} (${row.peer}) is detached; its connection stays.`),
    action: "Detach link",
    danger: true,
    act: async () => {
      await remove(`/links${path(row.identity)}`, { cell: row.cell });
      note(`Detached link ${row.name}`);
      return true;
    },
  });
}

export async function bind() {
  const source = h("input", { type: "text", required: true, autocomplete: "off", spellcheck: "false" });
  const target = h("input", { type: "text", required: true, autocomplete: "off", spellcheck: "false" });
  return form("Bind a queue to a topic", {
    content: [field("Topic", source), field("Queue", target, "It takes what is sent to the topic, and what it doesn't set itself.")],
    action: "Bind",
    act: async () => {
      await post("/bindings", { source: source.value, target: target.value });
      note(`Bound ${target.value} to ${source.value}`);
      return true;
    },
  });
}

export async function unbind({ source, target }) {
  return form("Unbind", {
    content: h("p", {}, `${target} takes no more of what is sent to ${source}; what it holds stays.`),
    action: "Unbind",
    danger: true,
    act: async () => {
      await ask("DELETE", "/bindings", { body: { source, target } });
      note(`Unbound ${target} from ${source}`);
      return true;
    },
  });
}

// A value as it is typed: a whole number, true, false, or a text such as "10 MB".
export function scalar(text) {
  const value = text.trim();
  if (/^-?\d+$/.test(value)) return Number(value);
  return { true: true, false: false }[value] ?? value;
}

function lines(text) {
  const rows = text.split("\n").map((each) => each.trim()).filter(Boolean);
  return Object.fromEntries(rows.map((row) => {
    const [, key, value] = /^([^=:\s]+)\s*[=:]\s*(.*)$/.exec(row) || [];
    if (!key) throw new Error(`“${row}” is not of the form name = value`);
    return [key, scalar(value)];
  }));
}

// A task a moment after the last of several events.
export function later(task, ms = ASK_MS) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(task, ms);
  };
}

