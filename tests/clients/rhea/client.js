// One verb a run: node client.js PORT VERB ADDRESS [COUNT]. Prints one JSON line; anything else is a failure.
'use strict';
const rhea = require('rhea');

const [port, verb, address, countText] = process.argv.slice(2);
const count = Number(countText || 1);
const options = { host: '127.0.0.1', port: Number(port), reconnect: false };

function finish(connection, result) {
  console.log(JSON.stringify(result));
  connection.close();
}

const VERBS = {
  send(container, connection) {
    let sent = 0;
    let accepted = 0;
    connection.open_sender(address);
    container.on('sendable', (context) => {
      while (context.sender.sendable() && sent < count) context.sender.send({ body: sent++ });
    });
    container.on('accepted', () => {
      if (++accepted === count) finish(connection, { accepted });
    });
  },

  receive(container, connection) {
    const bodies = [];
    connection.open_receiver(address);
    container.on('message', (context) => {
      bodies.push(context.message.body);
      if (bodies.length === count) {
        context.delivery.accept();
        context.receiver.close();
        finish(connection, { bodies });
      }
    });
  },

  // Takes `count` messages once, gives them back as `outcome` says, and tells what comes after.
  outcome(container, connection) {
    const seen = [];
    connection.open_receiver({ source: address, credit_window: 0, autoaccept: false }).add_credit(2 * count);
    container.on('message', (context) => {
      const { message, delivery } = context;
      seen.push({ body: message.body, delivery_count: message.delivery_count || 0 });
      if (seen.length <= count) {
        const give = {
          rejected: () => delivery.reject({ condition: 'amqp:internal-error', description: 'no' }),
          released: () => delivery.release(),
          failed: () => delivery.modified({ delivery_failed: true, undeliverable_here: false }),
        };
        give[process.argv[6]]();
      } else {
        delivery.accept();
      }
      if (seen.length === Number(process.argv[7])) finish(connection, { seen });
    });
  },

  drain(container, connection) {
    const bodies = [];
    const receiver = connection.open_receiver({ source: address, credit_window: 0 });
    receiver.drain = true;
    receiver.add_credit(100);
    container.on('message', (context) => bodies.push(context.message.body));
    container.on('receiver_drained', () => finish(connection, { bodies, credit: receiver.credit }));
  },

  // A message of `count` bytes there and back.
  large(container, connection) {
    const body = rhea.message.data_section(Buffer.alloc(count, 'x'));
    connection.open_receiver(address);
    connection.open_sender(address);
    container.once('sendable', (context) => context.sender.send({ body }));
    container.on('message', (context) => finish(connection, { bytes: context.message.body.content.length }));
  },

  // A message of `count` bytes, for which its link is detached; another link of the connection goes on.
  oversize(container, connection) {
    const body = rhea.message.data_section(Buffer.alloc(count, 'x'));
    connection.open_sender(address).once('sendable', (context) => context.sender.send({ body }));
    container.on('sender_error', (context) => {
      const { condition } = context.sender.error;
      connection.open_sender('others').once('sendable', (other) => other.sender.send({ body: 'goes on' }));
      container.on('accepted', () => finish(connection, { condition }));
    });
  },

  // `count` links on one connection: half of them send one message each, the others get them.
  links(container, connection) {
    let got = 0;
    for (let i = 0; i < count / 2; i++) {
      connection.open_receiver(`${address}.${i}`);
      connection.open_sender(`${address}.${i}`).once('sendable', (context) => context.sender.send({ body: i }));
    }
    container.on('message', () => {
      if (++got === count / 2) finish(connection, { got });
    });
  },

  // Reads `count` messages of a stream from a start on, and tells their offsets.
  read(container, connection) {
    const start = process.argv[6];
    const value = /^\d+$/.test(start) ? rhea.types.wrap_ulong(Number(start)) : start;
    const spec = 'rabbitmq:stream-offset-spec';
    const offsets = [];
    const filter = { [spec]: rhea.types.wrap_described(value, spec) };
    connection.open_receiver({ source: { address, filter } });
    container.on('message', (context) => {
      offsets.push(context.message.message_annotations['x-opt-sluice-offset']);
      if (offsets.length === count) finish(connection, { offsets });
    });
  },

  // A rejection's reason, as the sender hears it.
  refused(container, connection) {
    connection.open_sender(address);
    container.once('sendable', (context) => context.sender.send({ body: 'x' }));
    container.on('accepted', () => finish(connection, { outcome: 'accepted' }));
    container.on('rejected', (context) =>
      finish(connection, { outcome: 'rejected', condition: context.delivery.remote_state.error.condition }));
  },
};

const container = rhea.create_container();
container.on('disconnected', (context) => {
  if (context.error) throw context.error;
});
VERBS[verb](container, container.connect(options));
