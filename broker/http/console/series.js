// What was seen of each node lately: one point a second, bounded per node and in how many nodes.

import { live } from "./live.js";

const LONGEST = 330;
// Points are a second apart: over more than this nobody looked, and nothing is known of what was.
export const GAP_S = 4;
const MOST_NODES = 300;
const known = new Map();

// {at: seconds, depth_msgs, depth_bytes, stopped, since}, oldest first. A producer may fill a node within a
// second of its opening, so that every point is stopped: `since` is when the last stop began, as far as is known.
export function of(name) {
  let points = known.get(name);
  if (!points) {
    if (known.size >= MOST_NODES) known.delete(known.keys().next().value);
    points = [];
    known.set(name, points);
  }
  return points;
}

function add(name, point) {
  const points = of(name);
  const last = points[points.length - 1];
  if (last && point.at <= last.at) return;
  points.push(point);
  if (points.length > LONGEST) points.shift();
}

// The broker's own memory of it stands wherever nothing was seen: before the first point, and in gaps.
export function seed(name, remembered) {
  const points = of(name);
  const seen = points.map((point) => point.at);
  points.push(...remembered.filter((point) => !seen.some((at) => Math.abs(at - point.at) < 0.75)));
  points.sort((one, other) => one.at - other.at);
  points.splice(0, Math.max(0, points.length - LONGEST));
}

// The points in runs, each without a gap.
export function runs(points, at = (point) => point.at) {
  const found = [];
  for (const [index, point] of points.entries()) {
    if (index && at(point) - at(points[index - 1]) <= GAP_S) found[found.length - 1].push(point);
    else found.push([point]);
  }
  return found;
}

live.on("node", ({ name, depth_msgs, depth_bytes, flowStopped, flowStoppedFor }) => {
  const at = Date.now() / 1000;
  add(name, { at, depth_msgs, depth_bytes, stopped: Boolean(flowStopped), since: at - (flowStoppedFor || 0) });
});

// Stopped periods as [from, to]; a stop that began after the point before is one of its own.
export function stops(points) {
  const found = [];
  for (const [index, point] of points.entries()) {
    if (!point.stopped) continue;
    const before = index && point.at - points[index - 1].at <= GAP_S ? points[index - 1].at : point.at;
    const last = found[found.length - 1];
    if (last && last[1] === before && point.since <= before) last[1] = point.at;
    else found.push([Math.max(before, Math.min(point.since, point.at)), point.at]);
  }
  return found;
}

export function isKnown(name) {
  return known.has(name) && known.get(name).length > 1;
}
