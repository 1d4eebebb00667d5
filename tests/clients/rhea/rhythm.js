// A sender by a timer and a receiver of one queue, each on a connection that comes back by itself, as rhea's
// connections do with its default settings: node rhythm.js PORT ADDRESS EVERY_MS. Ends with its input, and
// prints how many messages were accepted and received, and the longest times without any, in milliseconds.
'use strict';
const rhea = require('rhea');

const [port, address, everyText] = process.argv.slice(2);

class Rhythm {
  constructor() {
    this.count = 0;
    this.longest = 0;
    this.last = Date.now();
  }

  beat() {
    this.count++;
    this.rest();
  }

  rest() {
    const now = Date.now();
    this.longest = Math.max(this.longest, now - this.last);
    this.last = now;
  }
}

const accepted = new Rhythm();
const received = new Rhythm();
let disconnected = 0;

function connect() {
  const container = rhea.create_container();
  container.on('disconnected', () => disconnected++);
  container.on('accepted', () => accepted.beat());
  container.on('message', () => received.beat());
  return container.connect({ host: '127.0.0.1', port: Number(port) });
}

const sending = connect();
const receiving = connect();
const sender = sending.open_sender(address);
receiving.open_receiver(address);

const timer = setInterval(() => {
  if (sender.sendable()) sender.send({ body: accepted.count, durable: true });
}, Number(everyText));

process.stdin.resume();
process.stdin.on('end', () => {
  clearInterval(timer);
  // What hasn't gone on until now counts as well.
  accepted.rest();
  received.rest();
  const longest = Math.max(accepted.longest, received.longest);
  const found = { accepted: accepted.count, received: received.count, longest, disconnected };
  process.stdout.write(`${JSON.stringify(found)}\n`, () => process.exit(0));
});
