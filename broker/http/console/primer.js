// The broker's own memory of nodes in sight, asked for once each and a few at a time.

import { get, path } from "./api.js";
import * as series from "./series.js";

const AT_ONCE = 2;
const asked = new Set();
const queue = [];
let busy = 0;

// `done(name)` is called once what was before is there.
export function prime(names, done, signal) {
  queue.length = 0;
  for (const name of names) if (!asked.has(name) && !series.isKnown(name)) queue.push([name, done, signal]);
  pump();
}

function pump() {
  while (busy < AT_ONCE && queue.length) {
    const [name, done, signal] = queue.shift();
    if (signal.aborted || asked.has(name)) continue;
    asked.add(name);
    busy += 1;
    remembered(name, signal).then(() => done(name), () => asked.delete(name)).finally(() => {
      busy -= 1;
      pump();
    });
  }
}

export async function remembered(name, signal) {
  const told = await get(`/history${path(name)}`, {}, signal);
  series.seed(name, rows(told));
  return told;
}

// Rows as objects, or as columns beside each other.
function rows(told) {
  return (told.rows || told.items || told.points || []).map((row) => ({
    at: row.at ?? row.time ?? row.t,
    depth_msgs: row.depth_msgs,
    depth_bytes: row.depth_bytes,
    stopped: Boolean(row.stopped),
  }));
}
