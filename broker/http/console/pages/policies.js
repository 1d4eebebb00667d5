// The policies that hold, where each comes from, and a text of new ones: tried first, then applied.

import { get, post } from "../api.js";
import { field, form, note } from "../dialog.js";
import { h, put } from "../dom.js";
import { plural } from "../format.js";
import { button, empty, heading, load, nodeLink, section, table } from "../page.js";
import { guarded } from "../session.js";

const EXAMPLE = `policies:
  - match: "orders.>"
    max_count: 1000
    flow_stop_count: 900
    flow_resume_count: 500
`;

export async function show(root, _params, signal) {
  const list = h("div", {}, empty("Looking…"));
  const again = () => load(list, () => get("/policies", { limit: 1000 }, signal), policies);
  put(
    root,
    heading("Policies", guarded(button("Read the files again…", () => reload(again)), "manage-write")),
    section("In force", h("p", { class: "hint" }, "The most specific pattern wins; what no policy sets is the broker's default. A node's page says which line each of its values comes from."), list),
    section("Apply", applier(again)),
    section("Explain an address", explainer(signal)),
  );
  await again();
}

function policies(told) {
  const rows = told.items;
  if (!rows.length) return empty("No policy is loaded: every node has the broker's defaults.");
  return table("Policies", [
    ["Match", (row) => [h("code", {}, row.match), row.of_subscriptions && h("span", { class: "hint" }, " subscriptions")]],
    ["Settings", (row) => settings(row)],
    ["From", (row) => h("span", { class: "origin" }, row.origin)],
  ], rows);
}

function settings(policy) {
  const rows = [...policy.settings, ...(policy.auto_create === null ? [] : [{ name: "auto_create", value: policy.auto_create, origin: policy.origin }])];
  return h("dl", { class: "pairs" }, rows.map(({ name, value, origin }) => h("div", { title: origin }, h("dt", {}, name), h("dd", {}, plain(value)))));
}

export function plain(value) {
  if (value === null || value === undefined || value === "") return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function applier(again) {
  const text = h("textarea", { rows: "10", class: "code", spellcheck: "false", value: EXAMPLE });
  const outcome = h("div", { role: "status", class: "outcome" });
  const apply = guarded(button("Apply", () => send(false), "primary"), "manage-write");
  apply.disabled = true;
  text.addEventListener("input", () => {
    apply.disabled = true;
  });
  const send = async (dryRun) => {
    apply.disabled = true;
    try {
      const { changed } = await post("/policies/apply", { text: text.value, file: "console", dry_run: dryRun });
      put(outcome, h("p", { class: "good" }, dryRun ? `It would change ${plural(changed.length, "node")}.` : `Applied; ${plural(changed.length, "node")} changed.`), names(changed));
      apply.disabled = !dryRun;
      if (!dryRun) {
        note("Policies applied");
        again();
      }
    } catch (fault) {
      put(outcome, h("pre", { class: "problem", role: "alert" }, fault.message));
    }
  };
  return h("div", {}, field("Policies, as in a file", text, "They replace those of the same patterns and hold until the files are read again."),
    h("div", { class: "buttons" }, button("Try (dry run)", () => send(true)), apply), outcome);
}

function names(changed) {
  const shown = changed.slice(0, 50);
  return shown.length > 0 && h("ul", { class: "names" }, shown.map((name) => h("li", {}, nodeLink("node", name))), changed.length > shown.length && h("li", {}, `and ${changed.length - shown.length} more`));
}

function reload(again) {
  return form("Read the files again", {
    content: h("p", {}, "Settings and policies are read from their files. What was applied here goes, unless a file has it."),
    action: "Read again",
    act: async () => {
      const { changed } = await post("/reload");
      note(`Read again; ${plural(changed.length, "node")} changed`);
      again();
      return true;
    },
  });
}

function explainer(signal) {
  const address = h("input", { type: "text", required: true, autocomplete: "off", spellcheck: "false" });
  const answer = h("div", {});
  const asked = (event) => {
    event.preventDefault();
    load(answer, () => get(`/explain/${encodeURIComponent(address.value)}`, {}, signal), explained);
  };
  return h("form", { onsubmit: asked }, h("div", { class: "row end" }, field("Address, whether or not it exists yet", address), h("button", { type: "submit" }, "Explain")), answer);
}

export function explained(told) {
  const about = told.exists ? `A ${told.kind} that exists.` : `No such node yet; it would be a ${told.kind}${told.auto_create ? "" : ", and clients may not create it"}.`;
  return [h("p", { class: "hint" }, about), table("Effective settings", [
    ["Setting", (row) => h("code", {}, row.name)],
    ["Value", (row) => plain(row.value), "num"],
    ["From", (row) => h("span", { class: "origin" }, row.origin)],
  ], told.settings)];
}

