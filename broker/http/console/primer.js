// The broker's own memory of nodes in sight, asked for once each and a few at a time.

import { get, path } from "./api.js";
import * as series from "./series.js";

const AT_ONCE = 2;
const SPARK_SECONDS = 90;
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
    remembered(name, signal, SPARK_SECONDS).then(() => done(name), () => asked.delete(name)).finally(() => {
      busy -= 1;
      pump();
    });
  }
}

// The last row is of now: the two machines' clocks needn't agree.
export async function remembered(name, signal, seconds) {
  const { rows } = await get(`/history${path(name)}`, { seconds }, signal);
  const ahead = rows.length ? Date.now() / 1000 - rows[rows.length - 1].time : 0;
  series.seed(name, rows.map(({ time, depth_msgs, depth_bytes, stopped, rate_in: taken }) => {
    const at = time + ahead;
    // What is stopped takes nothing in: where it did, it was open for a part of that second.
    return { at, depth_msgs, depth_bytes, stopped, since: taken > 0 ? at : 0 };
  }));
}
