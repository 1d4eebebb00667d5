// What was seen of each node lately: one point a second, bounded per node and in how many nodes.

import { live } from "./live.js";

const LONGEST = 330;
const MOST_NODES = 300;
const known = new Map();

// {at: seconds, depth_msgs, depth_bytes, stopped}, oldest first
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

// The broker's own memory of it stands before what was seen since.
export function seed(name, earlier) {
  const points = of(name);
  const first = points.length ? points[0].at : Infinity;
  points.unshift(...earlier.filter((point) => point.at < first - 0.5));
  points.splice(0, Math.max(0, points.length - LONGEST));
}

live.on("node", ({ name, depth_msgs, depth_bytes, flowStopped }) => add(name, { at: Date.now() / 1000, depth_msgs, depth_bytes, stopped: Boolean(flowStopped) }));

export function isKnown(name) {
  return known.has(name) && known.get(name).length > 1;
}
