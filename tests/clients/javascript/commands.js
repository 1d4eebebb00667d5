// The commands of ../README.md, for any library that a driver speaks for:
// { library, connect({ container, idleMs, websocket }), lacks: { feature: why } }.
'use strict';
const fs = require('fs');
const { NotAvailable, within } = require('./check.js');
const { fromTyped, toMessage } = require('./notation.js');
const { soak } = require('./soak.js');

const FEATURES = Object.assign({}, ...['queues', 'topics', 'nodes'].map((name) => require(`./${name}.js`).features));
const FEATURE_MS = 20_000;

function say(line) {
  fs.writeSync(1, `${JSON.stringify(line)}\n`);
}

// Everything a piece of work opens, and its end.
class Opened {
  constructor(driver) {
    this.driver = driver;
    this.connections = [];
  }

  async connect(options = {}) {
    const connection = await this.driver.connect(options);
    this.connections.push(connection);
    return connection;
  }

  async close() {
    for (const each of this.connections) await within(each.close(), 2000, 'close').catch(() => each.drop());
  }
}

async function feature(driver, p, name) {
  if (driver.lacks[name]) return { result: 'n/a', why: driver.lacks[name] };
  if (!FEATURES[name]) return { result: 'fail', why: 'this program does not know it' };
  const opened = new Opened(driver);
  const world = { p, connect: (options) => opened.connect(options), library: driver.library };
  try {
    await within(FEATURES[name](world), FEATURE_MS, 'end of the feature');
    return { result: 'pass', why: '' };
  } catch (error) {
    return { result: error instanceof NotAvailable ? 'n/a' : 'fail', why: error.message };
  } finally {
    await opened.close();
  }
}

const COMMANDS = {
  async features(driver, prefix, ...names) {
    for (const name of names) say({ feature: name, ...(await feature(driver, prefix, name)) });
  },

  async 'send-types'(driver, address, file) {
    const connection = await driver.connect({});
    const sender = await connection.sender(address);
    for (const each of JSON.parse(fs.readFileSync(file, 'utf8'))) {
      try {
        const outcome = await sender.send({ ...toMessage(driver.library, each), subject: each.name });
        if (outcome !== 'accepted') throw new Error(`${each.name} was ${outcome}`);
        say({ name: each.name, result: 'sent' });
      } catch (error) {
        if (!(error instanceof NotAvailable)) throw error;
        say({ name: each.name, result: 'n/a', why: error.message });
      }
    }
    await connection.close();
  },

  async 'receive-types'(driver, address, count) {
    const connection = await driver.connect({});
    const cases = JSON.parse(fs.readFileSync(require.resolve('../types.json'), 'utf8'));
    const sections = Object.fromEntries(cases.map((each) => [each.name, each.section]));
    const receiver = await connection.receiver(address, { typed: true });
    for (let i = 0; i < Number(count); i++) {
      const delivery = await receiver.take();
      const name = delivery.message.subject;
      try {
        say({ name, value: fromTyped(delivery.sections, sections[name]) });
      } catch (error) {
        if (!(error instanceof NotAvailable)) throw error;
        say({ name, result: 'n/a', why: error.message });
      }
      delivery.accept();
    }
    await connection.close();
  },

  async login(driver, mechanism, address) {
    if (!driver.login) throw new Error('this program does not log in');
    say(await driver.login(mechanism, process.env.LOGIN_USER, process.env.LOGIN_PASSWORD, address));
  },

  async soak(driver, prefix, seconds, seed) {
    say({ done: await soak(driver, prefix, Number(seconds), Number(seed)) });
  },
};

async function main(driver) {
  const [command, ...args] = process.argv.slice(2);
  try {
    await COMMANDS[command](driver, ...args);
    process.exit(0);
  } catch (error) {
    console.error(error);
    process.exit(1);
  }
}

module.exports = { main };
