// Random legal things from a seeded generator until the time is over, then everything is closed.
'use strict';
const { Refused, sleep, within } = require('./check.js');

function generator(seed) {
  let state = seed >>> 0;
  return () => {
    // mulberry32
    state = (state + 0x6d2b79f5) >>> 0;
    let value = Math.imul(state ^ (state >>> 15), 1 | state);
    value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value;
    return ((value ^ (value >>> 14)) >>> 0) / 4294967296;
  };
}

const MOST_CONNECTIONS = 3;
const MOST_LINKS = 6;
const LASTING = { name: 'lasting', durable: true };

class Walk {
  constructor(driver, p, seed) {
    this.driver = driver;
    this.p = p;
    this.container = `${p}-${driver.name}-${seed}`;
    this.random = generator(seed);
    this.connections = [];
    this.lasting = new Set();
    this.number = 0;
  }

  below(count) {
    return Math.floor(this.random() * count);
  }

  pick(list) {
    return list[this.below(list.length)];
  }

  address() {
    if (this.random() < 0.7) return `${this.p}.mixed${this.below(4)}`;
    return `${this.p}.news.${this.pick(['mixed0', 'mixed1', 'lasting'])}`;
  }

  async connect() {
    const connection = await this.driver.connect({ container: `${this.container}-${this.number++}` });
    this.connections.push({ connection, senders: [], receivers: [] });
  }

  // Takes a random link of one kind, of a random connection.
  link(kind, take) {
    const having = this.connections.filter((each) => each[kind].length);
    if (!having.length) return null;
    const links = this.pick(having)[kind];
    const index = this.below(links.length);
    return take ? links.splice(index, 1)[0] : links[index];
  }

  async open(kind, opening) {
    const place = this.pick(this.connections);
    if (place[kind].length >= MOST_LINKS) return;
    place[kind].push(await opening(place.connection));
  }

  async send() {
    const sender = this.link('senders');
    if (!sender) return;
    const sent = [];
    for (let i = this.below(20); i >= 0; i--) {
      const size = this.random() < 0.05 ? 100_000 : this.below(500);
      const application_properties = { colour: this.pick(['red', 'blue']) };
      sent.push(sender.offer({ body: 'x'.repeat(size), application_properties }));
    }
    if (this.random() < 0.7) await within(Promise.all(sent.map((each) => each.settled)), 300, '').catch(() => {});
  }

  async receive() {
    const receiver = this.link('receivers');
    if (!receiver) return;
    for (let i = this.below(20); i >= 0; i--) {
      const delivery = await receiver.take(50).catch(() => null);
      if (!delivery) return;
      const dice = this.random();
      if (dice < 0.7) delivery.accept();
      else if (dice < 0.8) delivery.release();
      else if (dice < 0.87) delivery.reject();
      else if (dice < 0.95) delivery.fail();
    }
  }

  // Comes back to a durable subscription, which is kept or ended.
  async subscribe() {
    const container = `${this.container}-lasting${this.below(2)}`;
    const connection = await this.driver.connect({ container });
    const receiver = await connection.receiver(`${this.p}.news.lasting`, LASTING);
    const delivery = await receiver.take(20).catch(() => null);
    if (delivery) delivery.accept();
    if (this.random() < 0.5) {
      this.lasting.add(container);
      await receiver.detach();
    } else {
      this.lasting.delete(container);
      await receiver.close();
    }
    await connection.close();
  }

  async step() {
    const dice = this.random();
    if (!this.connections.length || (dice < 0.03 && this.connections.length < MOST_CONNECTIONS)) await this.connect();
    else if (dice < 0.1) await this.open('senders', (on) => on.sender(this.address(), { settled: this.random() < 0.2 }));
    else if (dice < 0.17) await this.open('receivers', (on) => on.receiver(this.address(), this.receiving()));
    else if (dice < 0.19) await this.open('receivers', (on) => on.receiver(null, { dynamic: true }));
    else if (dice < 0.5) await this.send();
    else if (dice < 0.85) await this.receive();
    else if (dice < 0.94) await this.link(this.pick(['senders', 'receivers']), true)?.close();
    else if (dice < 0.96) await this.subscribe();
    else await this.leave();
  }

  receiving() {
    return this.pick([
      { credit: 1 + this.below(50) }, { window: 10 }, { browse: true, credit: 20 },
      { selector: "colour = 'red'" }, { settled: true, credit: 10 },
      { capability: 'shared', name: `mixed|${this.number++}` },
    ]);
  }

  // Ends a connection, with its links closed, with them open, or without a word.
  async leave() {
    const [{ connection, senders, receivers }] = this.connections.splice(this.below(this.connections.length), 1);
    const dice = this.random();
    if (dice < 0.3) for (const link of [...senders, ...receivers]) await link.close();
    if (dice < 0.6) await connection.close();
    else await connection.drop();
  }

  async end() {
    while (this.connections.length) await this.leave();
    for (const container of this.lasting) {
      const connection = await this.driver.connect({ container });
      await (await connection.receiver(`${this.p}.news.lasting`, LASTING)).close();
      await connection.close();
    }
  }
}

async function soak(driver, p, seconds, seed) {
  const walk = new Walk(driver, p, seed);
  const end = Date.now() + 1000 * seconds;
  let done = 0;
  while (Date.now() < end) {
    try {
      await within(walk.step(), 20_000, 'end of a step');
    } catch (error) {
      // A receiver of another address or filter than the shared subscription's others: it asked for that.
      if (!(error instanceof Refused && error.condition === 'amqp:resource-locked')) throw error;
    }
    done++;
    if (done % 50 === 0) await sleep(1);
  }
  await walk.end();
  return done;
}

module.exports = { soak };
