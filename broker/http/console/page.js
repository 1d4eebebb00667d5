// What every page is made of: its life, its states and its regular questions to the broker.

import { h, put } from "./dom.js";

// Ask again every so often while the page is shown and seen. A slow answer slows the asking, so that a page
// takes a bounded part of the broker's time.
export function every(signal, ms, task) {
  let timer = null;
  let busy = false;
  async function turn() {
    clearTimeout(timer);
    if (signal.aborted || busy) return;
    busy = true;
    const began = performance.now();
    if (!document.hidden) await task().catch(() => {});
    busy = false;
    if (!signal.aborted) timer = setTimeout(turn, Math.max(ms, (performance.now() - began) * 20));
  }
  signal.addEventListener("abort", () => clearTimeout(timer));
  turn();
  return turn;
}

export function heading(title, ...actions) {
  return h("div", { class: "heading" }, h("h1", { tabindex: "-1" }, title), h("div", { class: "actions" }, ...actions));
}

export function section(title, ...content) {
  return h("section", { class: "panel" }, h("h2", {}, title), ...content);
}

export function empty(text, ...more) {
  return h("p", { class: "empty" }, text, ...more);
}

export function failed(fault, again) {
  return h(
    "div",
    { class: "failed", role: "alert" },
    h("p", {}, fault.message),
    again && h("button", { type: "button", onclick: again }, "Try again"),
  );
}

// Fill an element with what a question brings, or with why it brings nothing.
export async function load(element, question, shown) {
  element.setAttribute("aria-busy", "true");
  try {
    put(element, shown(await question()));
  } catch (fault) {
    if (fault.name !== "AbortError") put(element, failed(fault, () => load(element, question, shown)));
  }
  element.removeAttribute("aria-busy");
}

export function button(text, onclick, kind = "") {
  return h("button", { type: "button", class: kind, onclick }, text);
}

export function link(href, text, props = {}) {
  return h("a", { href, ...props }, text);
}

export function nodeLink(kind, name, shown = name) {
  return link(nodeHref(kind, name), shown, { class: "name", title: name });
}

// Of a list over cells: whose part is missing, and why.
export function missing({ absent }) {
  const gone = Object.entries(absent || {}).map(([cell, reason]) => `cell ${cell}: ${reason}`);
  return gone.length ? `without ${gone.join("; ")}` : "";
}

export function nodeHref(kind, name) {
  return `#/${kind}/${encodeURIComponent(name)}`;
}

// A small table of all its rows; columns are [title, cell(row), class].
export function table(caption, columns, rows) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, columns.map(([title, , kind]) => h("th", { scope: "col", class: kind }, title)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, columns.map(([, cell, kind]) => h("td", { class: kind }, cell(row)))))),
    ),
  );
}

// New content where it differs; what had the focus has it again, and a table stays scrolled as it was.
export function keep(element, content, rows) {
  const key = rows.map((row) => row.identity).join();
  const fresh = put(h(element.tagName), content);
  if (fresh.textContent === element.textContent && element.dataset.key === key) return;
  const active = element.contains(document.activeElement) ? document.activeElement : null;
  const left = element.querySelector(".scroll")?.scrollLeft || 0;
  element.dataset.key = key;
  put(element, ...fresh.childNodes);
  const region = element.querySelector(".scroll");
  if (region) region.scrollLeft = left;
  if (active) (element.querySelector(`[data-id="${CSS.escape(active.dataset.id || "")}"]`) || region)?.focus({ preventScroll: true });
}
