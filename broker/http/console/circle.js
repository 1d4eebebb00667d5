// A deadlock as a picture: nodes and connections in a ring, an arrow to whom each waits for.

import { h, id, svg } from "./dom.js";

const WIDTH = 640;
const BOX = [150, 44];

export function picture(deadlock) {
  const members = around(deadlock);
  const height = members.length <= 4 ? 300 : 380;
  const label = id("circle");
  const arrow = id("arrow");
  const places = new Map(members.map((member, index) => {
    const angle = (index / members.length) * 2 * Math.PI - Math.PI / 2;
    return [member.key, { ...member, x: WIDTH / 2 + Math.cos(angle) * (WIDTH / 2 - 90), y: height / 2 + Math.sin(angle) * (height / 2 - 34) }];
  }));
  const arrows = edges(deadlock).map(([from, to]) => line(places.get(from), places.get(to), arrow));
  return h(
    "figure",
    { class: "circle" },
    svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-labelledby": label },
      svg("defs", {}, svg("marker", { id: arrow, viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 8, markerHeight: 8, orient: "auto-start-reverse" },
        svg("path", { d: "M0,0 L10,5 L0,10 Z" }))),
      arrows,
      [...places.values()].map(box),
    ),
    h("figcaption", { id: label }, deadlock.sentence),
  );
}

const queue = (name) => `node ${name}`;
const party = (name) => `connection ${name}`;

// Members in the order in which they wait, so that most arrows go to the next in the ring.
function around(deadlock) {
  const found = new Map();
  const add = (key, kind, text) => found.has(key) || found.set(key, { key, kind, text });
  for (const { node, connection } of deadlock.waits || []) {
    add(queue(node), "node", node);
    add(party(connection), "connection", connection);
  }
  const longest = Math.max(deadlock.nodes.length, deadlock.connections.length);
  for (let index = 0; index < longest; index += 1) {
    if (index < deadlock.nodes.length) add(queue(deadlock.nodes[index]), "node", deadlock.nodes[index]);
    if (index < deadlock.connections.length) add(party(deadlock.connections[index]), "connection", deadlock.connections[index]);
  }
  return [...found.values()].slice(0, 24);
}

function edges(deadlock) {
  const found = new Map();
  for (const { node, connection, target } of deadlock.waits || []) {
    found.set(`${node}\n${connection}`, [queue(node), party(connection)]);
    found.set(`${connection}\n${target}`, [party(connection), queue(target)]);
  }
  return [...found.values()];
}

function line(from, to, arrow) {
  if (!from || !to) return null;
  const [start, end] = [edge(from, to), edge(to, from)];
  return svg("line", { class: "wait", x1: start.x, y1: start.y, x2: end.x, y2: end.y, "marker-end": `url(#${arrow})` });
}

// Where the way from one box to another leaves the first.
function edge(from, to) {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const part = Math.min((BOX[0] / 2 + 4) / Math.max(Math.abs(dx), 0.01), (BOX[1] / 2 + 4) / Math.max(Math.abs(dy), 0.01), 0.5);
  return { x: from.x + dx * part, y: from.y + dy * part };
}

function box({ x, y, kind, text }) {
  const name = kind === "node" ? text : text.replace(/ \([^)]*\)$/, "");
  return svg(
    "g",
    { class: kind },
    svg("title", {}, text),
    svg("rect", { x: x - BOX[0] / 2, y: y - BOX[1] / 2, width: BOX[0], height: BOX[1], rx: kind === "node" ? 6 : 22 }),
    svg("text", { x, y: y - 3, "text-anchor": "middle", class: "kind" }, kind === "node" ? "stopped" : "connection"),
    svg("text", { x, y: y + 13, "text-anchor": "middle" }, name.length > 20 ? `${name.slice(0, 19)}…` : name),
  );
}
