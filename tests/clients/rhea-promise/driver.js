// rhea-promise behind the words that the features are written in.
//
// Its links can only be closed; a link is detached here by ending its session, which each link has for itself.
'use strict';
const net = require('net');
const WebSocket = require('ws');
const library = require('rhea-promise');
const { Refused, within } = require('../javascript/check.js');
const { Inbox } = require('../javascript/inbox.js');
const { sectionsOf } = require('../javascript/notation.js');
const { sourceOf, targetOf } = require('../javascript/termini.js');

const { Container, InsufficientCreditError, ReceiverEvents, SenderEvents } = library;
const ATTACH_MS = 10_000;
const rhea = { types: library.types, message: library.message, filter: library.filter };

// A message event has plain values; what reads them knows their types.
const decode = rhea.message.decode;
rhea.message.decode = (encoded) => Object.assign(decode(encoded), { encoded });

// How a link fails, from before it is attached: a refused one is attached first and detached at once (§2.6.3).
class Failure {
  constructor() {
    this.happened = new Promise((resolve, reject) => {
      this.fail = (context) => {
        const { error } = context.receiver ?? context.sender ?? context.session;
        reject(new Refused(error?.condition ?? 'nothing', error?.description));
      };
    });
    this.happened.catch(() => {});
  }

  async attached(opening, role) {
    let link;
    try {
      link = await Promise.race([opening, this.happened]);
    } catch (error) {
      throw error.condition && !(error instanceof Refused) ? new Refused(error.condition, error.description) : error;
    }
    const terminus = role === 'sender' ? link.target : link.source;
    if (!terminus) await within(this.happened, ATTACH_MS, 'detach');
    return link;
  }
}

class Link {
  constructor(link) {
    this.link = link;
  }

  async close() {
    await this.link.close();
  }

  async detach() {
    await this.link.session.close({ closeSession: true });
  }
}

class Sender extends Link {
  constructor(link, failure) {
    super(link);
    this.failure = failure;
    this.line = Promise.resolve();
  }

  offer(message) {
    const offered = { outcome: null };
    // One after another: a sender without credit throws, and says when it has some again.
    const sending = this.line.then(() => this.sendNow(message));
    this.line = sending.catch(() => {});
    offered.settled = sending.then(({ settled }) => settled).then((outcome) => (offered.outcome = outcome));
    offered.settled.catch(() => {});
    return offered;
  }

  async credit() {
    while (!this.link.sendable()) {
      const sendable = new Promise((resolve) => this.link.once(SenderEvents.sendable, resolve));
      await Promise.race([sendable, this.failure.happened]);
    }
  }

  async sendNow(message) {
    await this.credit();
    const settled = this.link.send(message).then(() => 'accepted', (error) => {
      if (!error.code || error instanceof InsufficientCreditError) throw error;
      return error.code;
    });
    settled.catch(() => {});
    return { settled };
  }

  send(message) {
    return within(Promise.race([this.offer(message).settled, this.failure.happened]), ATTACH_MS, 'outcome');
  }
}

// A sender of settled messages is no AwaitableSender: there is no outcome to await.
class SettledSender extends Sender {
  async sendNow(message) {
    await this.credit();
    this.link.send(message);
    return { settled: 'settled' };
  }
}

class Delivery {
  constructor({ message, delivery }) {
    this.message = message;
    this.delivery = delivery;
    this.body = message.body;
    this.deliveryCount = message.delivery_count ?? 0;
    this.isSettled = delivery.remote_settled;
  }

  get sections() {
    return sectionsOf(rhea, this.message.encoded);
  }

  accept() { this.delivery.accept(); }

  release() { this.delivery.release(); }

  reject() { this.delivery.reject({ condition: 'amqp:internal-error', description: 'no' }); }

  fail() { this.delivery.modified({ delivery_failed: true, undeliverable_here: false }); }
}

class Receiver extends Link {
  constructor(link, inbox) {
    super(link);
    this.inbox = inbox;
  }

  get address() { return this.link.address; }

  get credit() { return this.link.credit; }

  take(ms = 5000) { return this.inbox.get(ms, 'message'); }

  nothing(ms) { return this.inbox.nothing(ms); }

  async drain() {
    const drained = new Promise((resolve) => this.link.once(ReceiverEvents.receiverDrained, resolve));
    this.link.drainCredit();
    await within(drained, ATTACH_MS, 'end of the drain');
  }
}

class Connection {
  constructor(connection, sockets) {
    this.connection = connection;
    this.sockets = sockets;
  }

  async sender(address, { name, settled, ...options } = {}) {
    const failure = new Failure();
    const asked = {
      name, target: targetOf(address, options), snd_settle_mode: settled ? 1 : 0, onError: failure.fail,
    };
    if (settled) {
      return new SettledSender(await failure.attached(this.connection.createSender(asked), 'sender'), failure);
    }
    return new Sender(await failure.attached(this.connection.createAwaitableSender(asked), 'sender'), failure);
  }

  async receiver(address, { name, settled, credit, window, ...options } = {}) {
    const [failure, inbox] = [new Failure(), new Inbox()];
    failure.happened.catch((error) => inbox.fail(error));
    const opening = this.connection.createReceiver({
      name, source: sourceOf(rhea, address, options), autoaccept: false,
      credit_window: credit ? 0 : window ?? 100, snd_settle_mode: settled ? 1 : 0,
      onMessage: (context) => inbox.put(new Delivery(context)), onError: failure.fail,
    });
    const link = await failure.attached(opening, 'receiver');
    if (credit) link.addCredit(credit);
    return new Receiver(link, inbox);
  }

  async close() {
    await this.connection.close();
  }

  async drop() {
    for (const socket of this.sockets) socket.destroy();
  }
}

async function connect({ container, idleMs, websocket }) {
  const url = new URL(process.env.URL);
  const options = { host: url.hostname, port: Number(url.port), reconnect: false, idle_time_out: idleMs };
  const sockets = [];
  const own = new Container(container ? { id: container } : {});
  if (websocket) {
    options.connection_details = own.websocketConnect(WebSocket)(process.env.WS_URL, ['amqp'], {});
  } else {
    const open = (port, host, _, connected) => {
      sockets.push(net.connect({ port, host }, connected));
      return sockets.at(-1);
    };
    options.connection_details = () => ({ connect: open, host: options.host, port: options.port, options });
  }
  const made = own.createConnection(options);
  for (const event of ['connection_error', 'disconnected', 'error']) made.on(event, () => {});
  return new Connection(await made.open(), sockets);
}

module.exports = { name: 'rhea-promise', library: rhea, lacks: {}, connect };
