// Messages a second, in and out, over the last two minutes: two lines and their present figures.

import { h, id, put, say, svg } from "./dom.js";
import { ceiling, count, rate } from "./format.js";
import { get } from "./api.js";
import { live } from "./live.js";
import { GAP_S, runs } from "./series.js";

const SECONDS = 120;
const HEIGHT = 150;
const LEFT = 52;
const seen = [];
let before = null;
let asked = -Infinity;

// Rates are the broker's own where it says them, else what its totals grew by.
function take(broker) {
  const now = performance.now() / 1000;
  const settled = (broker.accepted || 0) + (broker.rejected || 0);
  const passed = before ? now - before.now : 0;
  if (before && passed < 0.5) return;
  const grown = (name, value) => (before && passed < 5 ? Math.max(0, (value - before[name]) / passed) : 0);
  const point = { now, in: broker.rate_in ?? grown("received", broker.received), out: broker.rate_out ?? grown("settled", settled) };
  if (before || broker.rate_in !== undefined) seen.push(point);
  before = { now, received: broker.received, settled };
  while (seen.length > SECONDS + 5) seen.shift();
}

// The broker's own memory of it stands wherever nothing was seen: before this page was opened, or while it was
// hidden. Its last row is of now: the two machines' clocks needn't agree.
async function remember() {
  const { rows } = await get("/history", { seconds: SECONDS });
  const now = performance.now() / 1000;
  const known = seen.map((point) => point.now);
  for (const row of rows) {
    const at = now - (rows[rows.length - 1].time - row.time);
    if (!known.some((each) => Math.abs(each - at) < 0.75)) seen.push({ now: at, in: row.rate_in, out: row.rate_out });
  }
  seen.sort((one, other) => one.now - other.now);
}

// It goes on whichever page is shown.
live.on("broker", (broker) => {
  take(broker);
  if (asked < before.now - GAP_S && (seen.length < 2 || runs(seen.slice(-2), (point) => point.now).length > 1)) {
    asked = before.now;
    remember().catch(() => {});
  }
});

export class RateChart {
  constructor() {
    const label = id("rates");
    this.picture = svg("svg", { class: "chart rates", role: "img", "aria-labelledby": label, height: HEIGHT });
    this.in = h("span", { class: "num" }, "–");
    this.out = h("span", { class: "num" }, "–");
    this.label = h("p", { class: "hidden", id: label });
    this.element = h("div", {}, h("p", { class: "legend" }, h("span", { class: "key in" }, "in ", this.in), h("span", { class: "key out" }, "out ", this.out)), this.picture, this.label);
    new ResizeObserver(() => this.draw()).observe(this.picture);
  }

  add() {
    this.draw();
  }

  draw() {
    const width = Math.max(260, this.picture.clientWidth || 500);
    const end = performance.now() / 1000;
    const last = seen[seen.length - 1];
    const top = ceiling(Math.max(0, ...seen.flatMap((point) => [point.in, point.out])) * 1.1);
    const x = (at) => LEFT + (1 - (end - at) / SECONDS) * (width - LEFT - 8);
    const y = (value) => 8 + (1 - value / top) * (HEIGHT - 28);
    const line = (name) => {
      const drawn = runs(seen.filter((point) => point.now > end - SECONDS), (point) => point.now).filter((run) => run.length > 1)
        .map((run) => `M${run.map((point) => `${x(point.now).toFixed(1)},${y(point[name]).toFixed(1)}`).join(" L")}`);
      return drawn.length > 0 && svg("path", { class: `curve ${name}`, d: drawn.join(" ") });
    };
    const axis = [0, 0.5, 1].map((part) => [
      svg("line", { class: "grid", x1: LEFT, x2: width - 8, y1: y(top * part), y2: y(top * part) }),
      svg("text", { x: LEFT - 8, y: y(top * part) + 4, "text-anchor": "end" }, count(top * part)),
    ]);
    const times = [svg("text", { x: LEFT, y: HEIGHT - 4 }, "−2 min"), svg("text", { x: width - 8, y: HEIGHT - 4, "text-anchor": "end" }, "now")];
    this.picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    put(this.picture, svg("g", { class: "axis" }, axis, times), line("out"), line("in"));
    say(this.in, last ? `${rate(last.in)} /s` : "–");
    say(this.out, last ? `${rate(last.out)} /s` : "–");
    say(this.label, last ? `Messages a second: ${rate(last.in)} in, ${rate(last.out)} out; the last two minutes' peak is ${count(Math.max(...seen.map((point) => Math.max(point.in, point.out))))}.` : "Messages a second, no figures yet.");
  }
}
