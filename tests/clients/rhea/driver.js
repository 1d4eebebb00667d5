// rhea behind the words that the features are written in.
'use strict';
const { EventEmitter } = require('events');
const { readFileSync } = require('fs');
const WebSocket = require('ws');
const rhea = require('rhea');
const { Refused, within } = require('../javascript/check.js');
const { Inbox } = require('../javascript/inbox.js');
const { sectionsOf } = require('../javascript/notation.js');
const { sourceOf, targetOf } = require('../javascript/termini.js');

const ATTACH_MS = 10_000;

// A message event has plain values; what reads them knows their types.
const decode = rhea.message.decode;
rhea.message.decode = (encoded) => Object.assign(decode(encoded), { encoded });

function once(emitter, event) {
  return within(new Promise((resolve) => emitter.once(event, resolve)), ATTACH_MS, event);
}

// A link that the broker refuses is attached first, without a terminus, and detached at once (§2.6.3).
class Link {
  constructor(link, role) {
    this.link = link;
    this.role = role;
    this.failure = new Promise((resolve, reject) => {
      link.on(`${role}_error`, () => reject(new Refused(link.error.condition, link.error.description)));
      link.connection.on('disconnected', () => reject(new Error('the connection is gone')));
    });
    this.failure.catch(() => {});
    this.closed = new Promise((resolve) => link.once(`${role}_close`, resolve));
  }

  async attached() {
    await Promise.race([once(this.link, `${this.role}_open`), this.failure]);
    const terminus = this.role === 'sender' ? this.link.target : this.link.source;
    if (!terminus) await within(this.failure, ATTACH_MS, 'detach');
    return this;
  }

  async close() {
    if (this.link.is_closed()) return;
    this.link.close();
    await within(this.closed, ATTACH_MS, 'detach');
  }

  async detach() {
    this.link.detach();
    await within(this.closed, ATTACH_MS, 'detach');
  }
}

class Sender extends Link {
  constructor(link, isSettled) {
    super(link, 'sender');
    this.isSettled = isSettled;
    link.on('settled', ({ delivery }) => delivery.emitter.emit('settled', delivery.remote_state));
  }

  offer(message) {
    const delivery = this.link.send(message);
    if (this.isSettled) return { outcome: 'settled', settled: Promise.resolve('settled') };
    delivery.emitter = new EventEmitter();
    const offered = { outcome: null };
    offered.settled = new Promise((resolve) => {
      delivery.emitter.once('settled', (state) => {
        offered.outcome = state.constructor.composite_type;
        resolve(offered.outcome);
      });
    });
    return offered;
  }

  send(message) {
    return within(Promise.race([this.offer(message).settled, this.failure]), ATTACH_MS, 'outcome');
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
  constructor(link) {
    super(link, 'receiver');
    this.inbox = new Inbox();
    link.on('message', (context) => this.inbox.put(new Delivery(context)));
    this.failure.catch((error) => this.inbox.fail(error));
  }

  get address() { return this.link.source.address; }

  get credit() { return this.link.credit; }

  take(ms = 5000) { return this.inbox.get(ms, 'message'); }

  nothing(ms) { return this.inbox.nothing(ms); }

  async drain() {
    const drained = once(this.link, 'receiver_drained');
    this.link.drain_credit();
    await drained;
  }
}

class Connection {
  constructor(connection) {
    this.connection = connection;
  }

  sender(address, options = {}) {
    const link = this.connection.open_sender({
      name: options.name, target: targetOf(address, options), snd_settle_mode: options.settled ? 1 : 0,
    });
    return new Sender(link, Boolean(options.settled)).attached();
  }

  receiver(address, options = {}) {
    const link = this.connection.open_receiver({
      name: options.name, source: sourceOf(rhea, address, options), autoaccept: false,
      credit_window: options.credit ? 0 : options.window ?? 100,
      snd_settle_mode: options.settled ? 1 : 0,
    });
    const receiver = new Receiver(link);
    if (options.credit) link.add_credit(options.credit);
    return receiver.attached();
  }

  async close() {
    if (!this.connection.is_open()) return;
    const closed = once(this.connection, 'connection_close');
    this.connection.close();
    await closed;
  }

  async drop() {
    this.connection.abort_socket(this.connection.socket);
  }
}

// TLS that trusts the file CA; with a certificate in the file CERT who it is is asked of that.
function secured(url) {
  if (url.protocol !== 'amqps:') return {};
  const trusting = { transport: 'tls', servername: url.hostname, ca: readFileSync(process.env.CA) };
  const own = process.env.CERT && readFileSync(process.env.CERT);
  return own ? { ...trusting, cert: own, key: own, enable_sasl_external: true } : trusting;
}

async function connect({ container, idleMs, websocket }) {
  const url = new URL(process.env.URL);
  const options = { host: url.hostname, port: Number(url.port), reconnect: false, idle_time_out: idleMs };
  Object.assign(options, secured(url));
  if (websocket) options.connection_details = rhea.websocket_connect(WebSocket)(process.env.WS_URL, ['amqp'], {});
  const connection = rhea.create_container(container ? { id: container } : {}).create_connection(options);
  const failed = new Promise((resolve, reject) => {
    for (const event of ['connection_error', 'disconnected', 'error']) {
      connection.on(event, (context) => reject(connection.error ?? context.error ?? new Error(event)));
    }
  });
  failed.catch(() => {});
  // Without a listener rhea says on the console that a connection is gone.
  connection.on('connection_close', () => {});
  connection.setMaxListeners(0);
  const opened = once(connection, 'connection_open');
  connection.connect();
  await Promise.race([opened, failed]);
  return new Connection(connection);
}

// rhea's own mechanisms; which of those that are offered it takes is told to it by leaving the others out.
const FACTORIES = {
  ANONYMOUS: (user) => ({ username: user }),
  PLAIN: (user, password) => ({ username: user, password }),
  EXTERNAL: () => ({}),
  XOAUTH2: (user, password) => ({ username: user, token: password }),
};

async function login(mechanism, user, password, address) {
  if (!FACTORIES[mechanism]) return { login: 'n/a', why: `rhea has no ${mechanism}` };
  const url = new URL(process.env.URL);
  const where = { host: url.hostname, port: Number(url.port), reconnect: false, ...secured(url) };
  const connection = rhea.create_container().create_connection({ ...where, ...FACTORIES[mechanism](user, password) });
  return within(
    new Promise((resolve) => {
      const say = (said) => {
        resolve({ login: 'accepted', why: '', ...said });
        connection.close();
      };
      connection.on('connection_open', () => (address ? sendOne(connection, address, say) : say({})));
      for (const event of ['connection_error', 'error', 'disconnected']) {
        connection.on(event, (context) => {
          const why = String(connection.error ?? context.error ?? event);
          resolve({ login: 'refused', why });
        });
      }
      connection.on('connection_close', () => {});
      connection.connect();
    }),
    ATTACH_MS,
    'an answer',
  );
}

function sendOne(connection, address, say) {
  const sender = connection.open_sender(address);
  sender.once('sendable', () => sender.send({ body: 'hello' }));
  sender.once('accepted', () => say({ send: 'accepted' }));
  const told = ({ condition, description }) => say({ send: 'refused', why: `${condition}: ${description}` });
  sender.once('sender_error', () => told(sender.error));
}

module.exports = { name: 'rhea', library: rhea, lacks: {}, connect, login };
