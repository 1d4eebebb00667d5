'use strict';
// Sends numbered messages and receives them, over a cell whose owner may change: transfer.js PORTS ADDRESS COUNT.
// rhea connects again by itself, to what connection_details returns each time, and attaches its links again.
// Messages that had no outcome when a connection was lost are the application's to send again.
const rhea = require('rhea');

const [ports, address, count] = [process.argv[2].split(',').map(Number), process.argv[3], Number(process.argv[4])];
const EVERY = 100;
const WINDOW = 20;
let left = Array.from({ length: count }, (_, at) => count - at);
const open = new Map();
const received = new Set();
let accepted = 0;
let again = 0;

function say(line) {
    process.stdout.write(`${JSON.stringify(line)}\n`);
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

function send(sender) {
    while (left.length && sender.sendable() && open.size < WINDOW) {
        const number = left.pop();
        open.set(sender.send({ body: String(number), durable: true }).id, number);
    }
}

sending.on('sender_open', (context) => {
    left = left.concat([...open.values()]);
    open.clear();
    send(context.sender);
});
sending.on('sendable', (context) => send(context.sender));
sending.on('accepted', (context) => {
    if (open.delete(context.delivery.id)) {
        accepted += 1;
        if (accepted % EVERY === 0) {
            say({ accepted, received: 0, again: 0 });
        }
        send(context.sender);
    }
});
receiving.on('message', (context) => {
    const number = Number(context.message.body);
    again += received.has(number) ? 1 : 0;
    received.add(number);
    if (received.size === count) {
        const finish = () => {
            if (accepted < count) {
                setTimeout(finish, 50);
                return;
            }
            say({ accepted, received: received.size, again });
            process.exit(0);
        };
        finish();
    }
});
for (const container of [sending, receiving]) {
    container.on('disconnected', () => {});
    container.on('connection_error', () => {});
    container.on('connection_close', () => {});
}
sending.connect(options).open_sender(address);
receiving.connect(options).open_receiver(address);
