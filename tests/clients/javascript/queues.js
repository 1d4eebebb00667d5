// Features of queues: sending, receiving, outcomes, credit.
'use strict';
const { equal, refused, sleep, within } = require('./check.js');

const range = (count) => Array.from({ length: count }, (_, i) => `${i}`);
const sorted = (bodies) => [...bodies].sort((one, other) => Number(one) - Number(other));

async function sendAll(sender, bodies) {
  const outcomes = await Promise.all(bodies.map((body) => sender.send({ body })));
  equal(outcomes, bodies.map(() => 'accepted'), 'the outcomes');
}

// Takes so many, accepts each, and tells their bodies.
async function takeAll(receiver, count) {
  const bodies = [];
  while (bodies.length < count) {
    const delivery = await receiver.take();
    bodies.push(delivery.body);
    delivery.accept();
  }
  return bodies;
}

module.exports = {
  range,
  sorted,
  sendAll,
  takeAll,
  features: {
    async 'send-receive'({ p, connect }) {
      const connection = await connect();
      await sendAll(await connection.sender(`${p}.plain`), range(100));
      const receiver = await connection.receiver(`${p}.plain`);
      equal(await takeAll(receiver, 100), range(100), 'the messages');
      await receiver.close();
      await (await connection.receiver(`${p}.plain`)).nothing(200);
    },

    async presettled({ p, connect }) {
      const connection = await connect();
      const sender = await connection.sender(`${p}.presettled`, { settled: true });
      for (const body of range(100)) await sender.send({ body });
      const receiver = await connection.receiver(`${p}.presettled`, { settled: true });
      const bodies = [];
      for (let i = 0; i < 100; i++) {
        const delivery = await receiver.take();
        equal(delivery.isSettled, true, 'settled by its sender');
        bodies.push(delivery.body);
        delivery.accept();
      }
      equal(bodies, range(100), 'the messages');
    },

    async blocked({ p, connect }) {
      const [producing, consuming] = [await connect(), await connect()];
      const sender = await producing.sender(`${p}.small`);
      await sendAll(sender, range(10));
      const eleventh = sender.offer({ body: '10' });
      await sleep(500);
      equal(eleventh.outcome, null, 'the outcome of the eleventh');
      await takeAll(await consuming.receiver(`${p}.small`, { credit: 7 }), 7);
      equal(await within(eleventh.settled, 5000, 'outcome of the eleventh'), 'accepted', 'the eleventh');
    },

    async credit({ p, connect }) {
      const connection = await connect();
      await sendAll(await connection.sender(`${p}.credit`), range(10));
      const first = await connection.receiver(`${p}.credit`, { credit: 3 });
      const bodies = [];
      for (let i = 0; i < 3; i++) bodies.push((await first.take()).body);
      await first.nothing(300);
      const second = await (await connect()).receiver(`${p}.credit`);
      bodies.push(...(await takeAll(second, 7)));
      await second.nothing(200);
      equal(sorted(bodies), range(10), 'the messages');
    },

    async outcomes({ p, connect }) {
      const connection = await connect();
      const sender = await connection.sender(`${p}.outcomes`);
      const receiver = await connection.receiver(`${p}.outcomes`);
      const take = async (body, count) => {
        const delivery = await receiver.take();
        equal([delivery.body, delivery.deliveryCount], [body, count], 'body and delivery-count');
        return delivery;
      };
      await sendAll(sender, ['released']);
      (await take('released', 0)).release();
      (await take('released', 0)).accept();
      await sendAll(sender, ['rejected']);
      (await take('rejected', 0)).reject();
      await receiver.nothing(300);
      await sendAll(sender, ['modified']);
      (await take('modified', 0)).fail();
      (await take('modified', 1)).accept();
    },

    async redelivery({ p, connect }) {
      const first = await connect();
      await sendAll(await first.sender(`${p}.redelivery`), ['again']);
      const before = await (await first.receiver(`${p}.redelivery`)).take();
      equal(before.deliveryCount, 0, 'delivery-count');
      await first.close();
      const after = await (await (await connect()).receiver(`${p}.redelivery`)).take();
      equal([after.body, after.deliveryCount], ['again', 1], 'body and delivery-count');
      after.accept();
    },

    async acknowledge({ p, connect }) {
      const connection = await connect();
      await sendAll(await connection.sender(`${p}.ack`), range(5));
      const receiver = await connection.receiver(`${p}.ack`);
      const taken = [];
      for (let i = 0; i < 5; i++) taken.push(await receiver.take());
      equal(taken.map((each) => each.body), range(5), 'the messages');
      for (const delivery of taken) delivery.accept();
      await connection.close();
      await (await (await connect()).receiver(`${p}.ack`)).nothing(300);
    },

    async browse({ p, connect }) {
      const connection = await connect();
      await sendAll(await connection.sender(`${p}.browse`), range(5));
      for (let i = 0; i < 2; i++) {
        const browser = await connection.receiver(`${p}.browse`, { browse: true });
        equal(await takeAll(browser, 5), range(5), 'what is seen');
        await browser.close();
      }
      equal(await takeAll(await connection.receiver(`${p}.browse`), 5), range(5), 'what is taken');
    },

    async selector({ p, connect }) {
      const connection = await connect();
      const sender = await connection.sender(`${p}.selected`);
      for (const [colour, weight] of [['red', 20], ['red', 5], ['blue', 20], ['red', 11]]) {
        await sender.send({ body: `${colour} ${weight}`, application_properties: { colour, weight } });
      }
      const filter = "colour = 'red' AND weight > 10";
      const choosy = await connection.receiver(`${p}.selected`, { selector: filter });
      equal(await takeAll(choosy, 2), ['red 20', 'red 11'], 'what is selected');
      await choosy.nothing(200);
      await choosy.close();
      const rest = await connection.receiver(`${p}.selected`);
      equal(await takeAll(rest, 2), ['red 5', 'blue 20'], 'the others');
    },

    async 'bad-selector'({ p, connect }) {
      const connection = await connect();
      await refused(connection.receiver(`${p}.selected`, { selector: 'colour = = 3' }), 'amqp:invalid-field');
    },

    async exclusive({ p, connect }) {
      const [one, other] = [await connect(), await connect()];
      await one.receiver(`${p}.exclusive`);
      await refused(other.receiver(`${p}.exclusive`), 'amqp:resource-locked');
    },

    async 'single-active'({ p, connect }) {
      const [one, other] = [await connect(), await connect()];
      const [first, second] = [await one.receiver(`${p}.single`), await other.receiver(`${p}.single`)];
      const sender = await one.sender(`${p}.single`);
      await sendAll(sender, range(3));
      equal(await takeAll(first, 3), range(3), 'what the first gets');
      await second.nothing(200);
      await first.close();
      await sendAll(sender, range(3));
      equal(await takeAll(second, 3), range(3), 'what the second gets');
    },

    async expiry({ p, connect }) {
      const connection = await connect();
      const sender = await connection.sender(`${p}.expiry`);
      await sender.send({ body: 'brief', ttl: 200 });
      await sleep(600);
      await sender.send({ body: 'lasting' });
      const receiver = await connection.receiver(`${p}.expiry`);
      equal(await takeAll(receiver, 1), ['lasting'], 'what is left');
      await receiver.nothing(200);
    },

    async priority({ p, connect }) {
      const connection = await connect();
      const sender = await connection.sender(`${p}.priority`);
      await sender.send({ body: 'urgent', priority: 7 });
      await sender.send({ body: 'plain' });
      const receiver = await connection.receiver(`${p}.priority`);
      const found = {};
      for (let i = 0; i < 2; i++) {
        const delivery = await receiver.take();
        // A header without it says 4 (AMQP 1.0 §3.2.1).
        found[delivery.body] = delivery.message.priority ?? 4;
        delivery.accept();
      }
      equal([found.urgent, found.plain], [7, 4], 'the priorities');
    },

    async large({ p, connect, library }) {
      const bytes = Buffer.alloc(20 << 20);
      for (let i = 0; i < bytes.length; i += 4) bytes.writeUInt32BE(Math.imul(i, 2654435761) >>> 0, i);
      const connection = await connect();
      const sender = await connection.sender(`${p}.large`);
      equal(await sender.send({ body: library.message.data_section(bytes) }), 'accepted', 'the outcome');
      const delivery = await (await connection.receiver(`${p}.large`)).take(15_000);
      delivery.accept();
      equal(bytes.equals(delivery.body.content), true, 'the same bytes');
    },
  },
};
