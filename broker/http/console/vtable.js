// A table of any length: the broker sorts, filters and pages; only the rows in sight are elements.
//
// A column is {id, title, cell(row, td), sort?: attribute, num?: right-aligned, kind?: class, once?: true}. `cell`
// returns a text or a node, or fills the cell by itself and returns nothing.

import { h, put, say } from "./dom.js";
import { every, failed, missing } from "./page.js";
import { plural } from "./format.js";

const AROUND = 15;
const LONGEST_FETCH = 120;
const MOST_KEPT = 2000;

export class VirtualTable {
  // `fetch({offset, limit, sort})` answers {items, total}; `onrows` is told the rows in sight.
  constructor({ label, unit, columns, fetch, sort, signal, onrows = () => {}, nothing = "Nothing here.", refreshMs = 3000 }) {
    Object.assign(this, { unit, columns, fetch, sort, signal, onrows, nothing });
    this.rows = new Map();
    this.shown = new Map();
    this.total = null;
    this.generation = 0;
    this.above = h("tr", { "aria-hidden": "true", class: "spacer" }, h("td", { colspan: columns.length }));
    this.below = this.above.cloneNode(true);
    this.body = h("tbody", {}, this.above, this.below);
    this.head = h("tr", { "aria-rowindex": "1" }, columns.map((column) => this.header(column)));
    this.table = h("table", { "aria-label": label }, h("thead", {}, this.head), this.body);
    this.message = h("div", { class: "overlay" });
    this.scroller = h("div", { class: "vtable", role: "region", "aria-label": label, tabindex: "0" }, this.table, this.message);
    this.status = h("p", { class: "status", role: "status" });
    this.scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.table.addEventListener("keydown", (event) => this.arrows(event));
    new ResizeObserver(() => this.scrolled()).observe(this.scroller);
    this.refresh = every(signal, refreshMs, () => this.load());
  }

  // Another question: what is shown stays until its answer is there.
  reset() {
    this.generation += 1;
    this.stale = true;
    this.scroller.setAttribute("aria-busy", "true");
    return this.load().catch(() => {});
  }

  header(column) {
    const props = { scope: "col", class: this.cellClass(column) };
    if (!column.sort) return h("th", props, column.title);
    const button = h("button", { type: "button", onclick: () => this.order(column) }, column.title, h("span", { class: "arrow", "aria-hidden": "true" }));
    const cell = h("th", props, button);
    cell.dataset.sort = column.sort;
    this.mark(cell);
    return cell;
  }

  cellClass(column) {
    return [column.num && "num", column.kind].filter(Boolean).join(" ") || undefined;
  }

  order(column) {
    const first = column.num ? `-${column.sort}` : column.sort;
    const second = column.num ? column.sort : `-${column.sort}`;
    this.sort = this.sort === first ? second : first;
    for (const cell of this.head.children) this.mark(cell);
    this.scroller.scrollTop = 0;
    this.reset();
  }

  mark(cell) {
    if (!cell.dataset.sort) return;
    const way = { [cell.dataset.sort]: "ascending", [`-${cell.dataset.sort}`]: "descending" }[this.sort];
    if (way) cell.setAttribute("aria-sort", way);
    else cell.removeAttribute("aria-sort");
  }

  rowHeight() {
    return parseFloat(getComputedStyle(this.scroller).getPropertyValue("--row")) || 36;
  }

  sight() {
    const height = this.rowHeight();
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / height));
    return { first, last: first + Math.ceil((this.scroller.clientHeight || 600) / height) };
  }

  async load() {
    const generation = this.generation;
    const { first, last } = this.sight();
    const offset = this.stale ? 0 : Math.max(0, first - AROUND);
    const limit = Math.min(LONGEST_FETCH, last - first + 2 * AROUND);
    let page;
    try {
      page = await this.fetch({ offset, limit, sort: this.sort }, this.signal);
    } catch (fault) {
      if (fault.name === "AbortError" || generation !== this.generation) return;
      if (this.total === null || fault.status !== 0) put(this.message, failed(fault, () => this.reset()));
      throw fault;
    }
    if (generation !== this.generation || this.signal.aborted) return;
    if (this.stale || this.rows.size > MOST_KEPT) this.rows.clear();
    this.stale = false;
    this.total = page.total;
    page.items.forEach((row, index) => this.rows.set(offset + index, row));
    for (const index of this.rows.keys()) if (index >= page.total) this.rows.delete(index);
    this.scroller.removeAttribute("aria-busy");
    this.render();
    put(this.message, page.total === 0 && h("p", { class: "empty" }, typeof this.nothing === "function" ? this.nothing() : this.nothing));
    say(this.status, [plural(page.total, this.unit), missing(page)].filter(Boolean).join(", "));
  }

  scrolled() {
    if (this.total === null) return;
    this.render();
    const { first, last } = this.sight();
    for (let index = first; index < Math.min(last, this.total); index += 1) {
      if (!this.rows.has(index)) {
        clearTimeout(this.pause);
        this.pause = setTimeout(() => this.load().catch(() => {}), 60);
        return;
      }
    }
  }

  render() {
    const sight = this.sight();
    const first = Math.max(0, Math.min(sight.first, this.total) - AROUND);
    const last = Math.min(this.total, sight.last + AROUND);
    for (const [index, row] of this.shown) {
      if (index < first || index >= last) {
        row.remove();
        this.shown.delete(index);
      }
    }
    let next = this.below;
    for (let index = last - 1; index >= first; index -= 1) {
      let row = this.shown.get(index);
      if (!row) {
        row = this.line(index);
        this.shown.set(index, row);
      }
      if (row.nextSibling !== next) this.body.insertBefore(row, next);
      this.fill(row, this.rows.get(index));
      next = row;
    }
    const height = this.rowHeight();
    this.above.style.height = `${first * height}px`;
    this.below.style.height = `${Math.max(0, this.total - last) * height}px`;
    this.table.setAttribute("aria-rowcount", String(this.total + 1));
    const inSight = [];
    for (let index = sight.first; index < Math.min(sight.last, this.total); index += 1) {
      if (this.rows.has(index)) inSight.push(this.rows.get(index));
    }
    this.onrows(inSight);
  }

  line(index) {
    return h("tr", { "aria-rowindex": String(index + 2) }, this.columns.map((column, index) => h(index ? "td" : "th", { class: this.cellClass(column), scope: !index && "row" })));
  }

  fill(line, row) {
    line.classList.toggle("waiting", !row);
    this.columns.forEach((column, index) => {
      const cell = line.children[index];
      const shown = row ? column.cell(row, cell) : "…";
      if (shown === undefined) return;
      if (!(shown instanceof Node)) say(cell, shown);
      else if (!cell.firstChild || !shown.isEqualNode(cell.firstChild)) put(cell, shown);
    });
  }

  // The row of a key again, with what is new of it.
  update(matches, changes) {
    for (const [index, row] of this.rows) {
      if (!matches(row)) continue;
      Object.assign(row, changes);
      const line = this.shown.get(index);
      if (line) this.fill(line, row);
    }
  }

  arrows(event) {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const line = event.target.closest("tbody tr");
    if (!line) return;
    event.preventDefault();
    const index = Number(line.getAttribute("aria-rowindex")) - 2 + (event.key === "ArrowDown" ? 1 : -1);
    const height = this.rowHeight();
    const head = this.head.offsetHeight;
    if (index < 0 || index >= this.total) return;
    if (index * height < this.scroller.scrollTop) this.scroller.scrollTop = index * height;
    const bottom = (index + 1) * height + head;
    if (bottom > this.scroller.scrollTop + this.scroller.clientHeight) this.scroller.scrollTop = bottom - this.scroller.clientHeight;
    this.render();
    const next = this.shown.get(index);
    if (next) next.querySelector("a, button")?.focus({ preventScroll: true });
  }
}
