'use strict';
// Sends numbered messages and receives them, over a cell whose owner may change: transfer.js PORTS ADDRESS COUNT.
// rhea connects again by itself, to what connection_details returns each time, and attaches its links again.
// Messages that had no outcome when a connection was lost are the application's to send again. With a COUNT of 0
// it sends until its standard input ends; with SLUICE_PAUSE_MS it sends a window, at most, each time a timer
// rings. A message is confirmed once the broker has settled it, and must not come again then unless it was sent
// again.
const rhea = require('rhea');

const ports = process.argv[2].split(',').map(Number);
const address = process.argv[3];
let count = Number(process.argv[4]);
const PAUSE_MS = Number(process.env.SLUICE_PAUSE_MS || 0);
const EVERY = 20;
const WINDOW = 20;
const LOOK_MS = 50;
let following = 1;
let left = [];
const sentAgain = new Set();
const open = new Map();
const received = new Set();
const confirmed = new Set();
const unconfirmed = new Map();
let accepted = 0;
let again = 0;
let confirmedAgain = 0;

function say(then) {
    const line = { accepted, received: received.size, again, confirmed_again: confirmedAgain };
    process.stdout.write(`${JSON.stringify(line)}\n`, then);
}

// The number that rhea hands over counts connections that came about, not attempts: the next one is ours to say.
let next = 0;
function details() {
    next += 1;
    return { host: '127.0.0.1', port: ports[next % ports.length] };
}

const options = {
    connection_details: details,
    reconnect: true,
    initial_reconnect_delay: 50,
    max_reconnect_delay: 500,
    idle_time_out: 5000,
};
const sending = rhea.create_container();
const receiving = rhea.create_container();

function taken() {
    if (left.length) {
        return left.pop();
    }
    if (count && following > count) {
        return 0;
    }
    following += 1;
    return following - 1;
}

function send(sender) {
    while (sender.is_open() && sender.sendable() && open.size < WINDOW) {
        const number = taken();
        if (!number) {
            return;
        }
        open.set(sender.send({ body: String(number), durable: true }).id, number);
    }
}

function endIfDone() {
    if (count && received.size === count && accepted === count) {
        say(() => process.exit(0));
    }
}

sending.on('sender_open', (context) => {
    for (const number of open.values()) {
        left.push(number);
        sentAgain.add(number);
    }
    open.clear();
    send(context.sender);
});
sending.on('sendable', (context) => {
    if (!PAUSE_MS) {
        send(context.sender);
    }
});
sending.on('accepted', (context) => {
    if (open.delete(context.delivery.id)) {
        accepted += 1;
        if (accepted % EVERY === 0) {
            say();
        }
        if (!PAUSE_MS) {
            send(context.sender);
        }
    }
});
receiving.on('receiver_open', () => unconfirmed.clear());
receiving.on('message', (context) => {
    const number = Number(context.message.body);
    again += received.has(number) ? 1 : 0;
    confirmedAgain += confirmed.has(number) && !sentAgain.has(number) ? 1 : 0;
    received.add(number);
    unconfirmed.set(context.delivery.id, number);
});
receiving.on('settled', (context) => {
    const number = unconfirmed.get(context.delivery.id);
    if (unconfirmed.delete(context.delivery.id)) {
        confirmed.add(number);
    }
});
for (const container of [sending, receiving]) {
    container.on('disconnected', () => {});
    container.on('connection_error', () => {});
    container.on('connection_close', () => {});
}
const sender = sending.connect(options).open_sender(address);
receiving.connect(options).open_receiver({ source: address, rcv_settle_mode: 1 });
setInterval(() => {
    send(sender);
    endIfDone();
}, PAUSE_MS || LOOK_MS);
if (!count) {
    process.stdin.on('end', () => {
        count = following - 1;
    });
    process.stdin.resume();
}
