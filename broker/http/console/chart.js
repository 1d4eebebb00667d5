// Depth over time against the lines that stop and resume producers, stopped periods shaded.
//
// The picture is SVG; what it says is said in a sentence and a table as well.

import { h, id, put, say, svg } from "./dom.js";
import { ceiling, count, size, span } from "./format.js";
import { runs, stops } from "./series.js";

const HEIGHT = 240;
const LEFT = 58;
const RIGHT = 14;
const TOP = 14;
const BOTTOM = 26;
const TABLE_ROWS = 30;

export class DepthChart {
  // `points` are those of series.js; `limits` {stop, resume} in the unit that is shown, 0 for none. `name` is
  // whose depth it is, `role` what the sentence says of that, for one that isn't the page's own.
  constructor(name) {
    this.name = name;
    this.role = "";
    this.points = [];
    this.unit = "msgs";
    this.limits = { msgs: {}, bytes: {} };
    this.seconds = 120;
    this.cursor = null;
    const label = id("chart");
    this.picture = svg("svg", { class: "chart", role: "img", "aria-labelledby": label, tabindex: "0", height: HEIGHT });
    this.summary = h("p", { id: label, class: "hint" });
    this.reading = h("p", { class: "reading", role: "status" });
    this.rows = h("tbody");
    this.details = h(
      "details",
      {},
      h("summary", {}, "The same as a table"),
      h("table", {}, h("thead", {}, h("tr", {}, ["Time", "Messages", "Bytes", "Producers"].map((each) => h("th", { scope: "col" }, each)))), this.rows),
    );
    this.details.addEventListener("toggle", () => this.tabulate());
    this.picture.addEventListener("pointermove", (event) => this.point(event));
    this.picture.addEventListener("pointerleave", () => this.at(null));
    this.picture.addEventListener("keydown", (event) => this.step(event));
    this.picture.addEventListener("blur", () => this.at(null));
    this.element = h("div", {}, this.controls(), this.picture, this.reading, this.summary, this.details);
    new ResizeObserver(() => this.draw()).observe(this.picture);
  }

  controls() {
    const choice = (text, options, chosen, act) =>
      h("fieldset", { class: "choice" }, h("legend", { class: "hidden" }, text), options.map(([value, label]) => {
        const input = h("input", { type: "radio", name: `${text}-choice`, value, checked: value === chosen, onchange: () => act(value) });
        return h("label", {}, input, h("span", {}, label));
      }));
    return h(
      "div",
      { class: "controls" },
      choice("Unit", [["msgs", "Messages"], ["bytes", "Bytes"]], this.unit, (unit) => this.change({ unit })),
      choice("Time", [[60, "1 min"], [120, "2 min"], [300, "5 min"]], this.seconds, (seconds) => this.change({ seconds })),
    );
  }

  change(what) {
    Object.assign(this, what);
    this.draw();
  }

  value(point) {
    return this.unit === "msgs" ? point.depth_msgs : point.depth_bytes;
  }

  text(value) {
    return this.unit === "msgs" ? count(value) : size(value);
  }

  draw() {
    const width = Math.max(280, this.picture.clientWidth || 700);
    const end = this.points.length ? this.points[this.points.length - 1].at : Date.now() / 1000;
    const seen = this.points.filter((point) => point.at > end - this.seconds);
    const { stop = 0, resume = 0 } = this.limits[this.unit];
    const peak = Math.max(0, ...seen.map((point) => this.value(point)));
    // A threshold far above everything seen would press the line to the floor: then it is named, not drawn.
    const near = stop && (stop <= Math.max(peak * 50, 1000) || this.unit === "msgs");
    const top = ceiling(Math.max(peak, near ? stop : 0) * 1.05);
    const x = (at) => LEFT + (1 - (end - at) / this.seconds) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
    Object.assign(this, { seen, x, y, end, width });
    this.picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.mark = svg("g", { class: "cursor" });
    put(this.picture, this.shades(), this.axis(top), this.curve(), near && this.line("stop", stop), near && resume && this.line("resume", resume), this.mark);
    say(this.summary, this.sentence(seen, stop, resume));
    this.at(this.cursor);
    if (this.details.open) this.tabulate();
  }

  shades() {
    return stops(this.seen).map(([from, to]) =>
      svg("rect", { class: "shade", x: this.x(from), y: TOP, width: Math.max(1, this.x(to) - this.x(from)), height: HEIGHT - TOP - BOTTOM }));
  }

  axis(top) {
    const rows = [0, 0.25, 0.5, 0.75, 1].map((part) => {
      const height = this.y(top * part);
      return [svg("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: height, y2: height }),
        svg("text", { x: LEFT - 8, y: height + 4, "text-anchor": "end" }, this.text(Math.round(top * part)))];
    });
    const parts = this.width < 500 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1];
    const times = parts.map((part) => {
      const before = this.seconds * (1 - part);
      const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
      return svg("text", { x: this.x(this.end - before), y: HEIGHT - 8, "text-anchor": anchor }, before ? `−${span(Math.round(before)).replace(" 0 s", "")}` : "now");
    });
    return svg("g", { class: "axis" }, rows, times);
  }

  curve() {
    const floor = this.y(0);
    const parts = runs(this.seen).filter((run) => run.length > 1).map((run) => {
      const path = run.map((point) => `${this.x(point.at).toFixed(1)},${this.y(this.value(point)).toFixed(1)}`).join(" L");
      const [first, last] = [run[0], run[run.length - 1]].map((point) => this.x(point.at).toFixed(1));
      return { line: `M${path}`, area: `M${first},${floor} L${path} L${last},${floor} Z` };
    });
    if (!parts.length) return null;
    const drawn = (what) => parts.map((part) => part[what]).join(" ");
    return [svg("path", { class: "area", d: drawn("area") }), svg("path", { class: "curve", d: drawn("line") })];
  }

  line(kind, value) {
    const height = this.y(value);
    return svg("g", { class: `limit ${kind}` },
      svg("line", { x1: LEFT, x2: this.width - RIGHT, y1: height, y2: height }),
      svg("text", { x: LEFT + 6, y: kind === "stop" ? height - 5 : height + 13 }, `${kind} ${this.text(value)}`));
  }

  sentence(seen, stop, resume) {
    if (!seen.length) return "Nothing was seen yet; the line begins with the next second.";
    const values = seen.map((point) => this.value(point));
    const periods = stops(seen);
    const stopped = periods.reduce((sum, [from, to]) => sum + to - from, 0);
    const limits = stop ? `stop at ${this.text(stop)}, resume below ${this.text(resume)}` : "no threshold in this unit";
    const held = periods.length ? `stopped ${periods.length === 1 ? "once" : `${periods.length} times`}, ${span(stopped)} in all` : "never stopped";
    return `Depth of ${this.name}${this.role} over ${span(seen[seen.length - 1].at - seen[0].at)}: now ${this.text(values[values.length - 1])}, between ${this.text(Math.min(...values))} and ${this.text(Math.max(...values))}; ${limits}; ${held}.`;
  }

  tabulate() {
    if (!this.details.open) return;
    put(this.rows, this.seen.slice(-TABLE_ROWS).reverse().map((point) =>
      h("tr", {}, h("td", {}, new Date(point.at * 1000).toLocaleTimeString()), h("td", { class: "num" }, count(point.depth_msgs)),
        h("td", { class: "num" }, size(point.depth_bytes)), h("td", {}, point.stopped ? "stopped" : "open"))));
  }

  // --- reading one point

  point(event) {
    const box = this.picture.getBoundingClientRect();
    const at = this.end - (1 - (event.clientX - box.left - LEFT) / (this.width - LEFT - RIGHT)) * this.seconds;
    this.at(at);
  }

  step(event) {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!way || !this.seen.length) return;
    event.preventDefault();
    this.at(Math.min(this.end, Math.max(this.seen[0].at, (this.cursor ?? this.end) + way * Math.max(1, this.seconds / 60))));
  }

  at(moment) {
    this.cursor = moment;
    const found = moment === null || !this.seen.length ? null : this.seen.reduce((best, each) => (Math.abs(each.at - moment) < Math.abs(best.at - moment) ? each : best));
    if (!found) {
      put(this.mark);
      say(this.reading, "");
      return;
    }
    const x = this.x(found.at);
    put(this.mark, svg("line", { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }), svg("circle", { cx: x, cy: this.y(this.value(found)), r: 3.5 }));
    say(this.reading, `${new Date(found.at * 1000).toLocaleTimeString()}: ${count(found.depth_msgs)} messages, ${size(found.depth_bytes)}, ${found.stopped ? "producers stopped" : "open"}`);
  }
}
