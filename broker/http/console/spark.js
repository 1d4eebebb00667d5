// A sparkline of depth: the last minute or two in a small canvas, stopped seconds in the warning colour.

import { of, runs, stops } from "./series.js";

const SECONDS = 90;
const WIDTH = 110;
const HEIGHT = 24;

export function make() {
  const canvas = document.createElement("canvas");
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = WIDTH * ratio;
  canvas.height = HEIGHT * ratio;
  canvas.className = "spark";
  canvas.setAttribute("aria-hidden", "true");
  return canvas;
}

export function draw(canvas, name, stop) {
  const points = of(name);
  const context = canvas.getContext("2d");
  context.setTransform(canvas.width / WIDTH, 0, 0, canvas.height / HEIGHT, 0, 0);
  context.clearRect(0, 0, WIDTH, HEIGHT);
  if (points.length < 2) return;
  const colours = getComputedStyle(document.documentElement);
  const end = points[points.length - 1].at;
  const seen = points.filter((point) => point.at >= end - SECONDS);
  const top = Math.max(1, stop || 0, ...seen.map((point) => point.depth_msgs));
  const x = (at) => WIDTH - 1 - ((end - at) / SECONDS) * (WIDTH - 2);
  const y = (depth) => HEIGHT - 2 - (depth / top) * (HEIGHT - 5);
  context.fillStyle = colours.getPropertyValue("--stop-soft");
  for (const [from, to] of stops(seen)) context.fillRect(x(from), 0, x(to) - x(from), HEIGHT);
  context.beginPath();
  for (const run of runs(seen)) {
    context.moveTo(x(run[0].at), y(run[0].depth_msgs));
    for (const point of run) context.lineTo(x(point.at), y(point.depth_msgs));
  }
  context.strokeStyle = colours.getPropertyValue("--line");
  context.lineWidth = 1.4;
  context.lineJoin = "round";
  context.stroke();
}
