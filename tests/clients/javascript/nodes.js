// Features of addresses, links and connections.
'use strict';
const { equal, refused, sleep } = require('./check.js');
const { range, sendAll, sorted, takeAll } = require('./queues.js');

module.exports = {
  features: {
    async reply({ p, connect }) {
      const [asking, answering] = [await connect(), await connect()];
      const replies = await asking.receiver(null, { dynamic: true });
      const requests = await answering.receiver(`${p}.request`);
      const request = { body: 'ask', message_id: 'request 1', reply_to: replies.address };
      await (await asking.sender(`${p}.request`)).send(request);
      const asked = await requests.take();
      asked.accept();
      const answer = await answering.sender(asked.message.reply_to);
      await answer.send({ body: 'answer', correlation_id: asked.message.message_id });
      const { message, body } = await replies.take();
      equal([body, message.correlation_id], ['answer', 'request 1'], 'the answer');
      await answer.close();
      await asking.close();
      await refused((await connect()).receiver(replies.address), 'amqp:not-found');
    },

    async 'temporary-topic'({ connect }) {
      const connection = await connect();
      const first = await connection.receiver(null, { dynamic: true, capability: 'temporary-topic' });
      const second = await connection.receiver(first.address);
      await sendAll(await connection.sender(first.address), range(2));
      equal(await takeAll(first, 2), range(2), 'what the first gets');
      equal(await takeAll(second, 2), range(2), 'what the second gets');
    },

    async relay({ p, connect }) {
      const connection = await connect();
      const sender = await connection.sender(null);
      for (const to of [`${p}.relay1`, `${p}.relay2`]) {
        equal(await sender.send({ to, body: to }), 'accepted', 'the outcome');
      }
      for (const address of [`${p}.relay1`, `${p}.relay2`]) {
        equal(await takeAll(await connection.receiver(address), 1), [address], `what ${address} gets`);
      }
    },

    async 'queue-capability'({ p, connect }) {
      const connection = await connect();
      const asked = { capability: 'queue', credit: 2 };
      const first = await connection.receiver(`${p}.made.queue`, asked);
      const second = await connection.receiver(`${p}.made.queue`, asked);
      await sendAll(await connection.sender(`${p}.made.queue`, { capability: 'queue' }), range(4));
      const bodies = [...(await takeAll(first, 2)), ...(await takeAll(second, 2))];
      equal(sorted(bodies), range(4), 'what both get');
    },

    async 'topic-capability'({ p, connect }) {
      const connection = await connect();
      const first = await connection.receiver(`${p}.made.topic`, { capability: 'topic' });
      const second = await connection.receiver(`${p}.made.topic`, { capability: 'topic' });
      await sendAll(await connection.sender(`${p}.made.topic`, { capability: 'topic' }), range(2));
      equal(await takeAll(first, 2), range(2), 'what the first gets');
      equal(await takeAll(second, 2), range(2), 'what the second gets');
    },

    async prefixes({ p, connect }) {
      const connection = await connect();
      await sendAll(await connection.sender(`queue://${p}.prefixed`), ['queue']);
      equal(await takeAll(await connection.receiver(`${p}.prefixed`), 1), ['queue'], 'from the queue');
      const receiver = await connection.receiver(`/${p}.news.prefixed`);
      await sendAll(await connection.sender(`topic://${p}.news.prefixed`), ['topic']);
      equal(await takeAll(receiver, 1), ['topic'], 'from the topic');
    },

    async 'not-found'({ p, connect }) {
      const connection = await connect();
      await refused(connection.sender(`${p}.closed.nowhere`), 'amqp:not-found');
      await refused(connection.receiver(`${p}.closed.nowhere`), 'amqp:not-found');
    },

    async drain({ p, connect }) {
      const connection = await connect();
      await sendAll(await connection.sender(`${p}.drain`), range(3));
      const receiver = await connection.receiver(`${p}.drain`, { credit: 10 });
      const drained = receiver.drain();
      equal(await takeAll(receiver, 3), range(3), 'the messages');
      await drained;
      equal(receiver.credit, 0, 'the credit left');
    },

    async reattach({ p, connect }) {
      const connection = await connect();
      const name = `${p}-reattach`;
      const before = await connection.sender(`${p}.reattach`, { name });
      await sendAll(before, ['before']);
      await before.detach();
      await sendAll(await connection.sender(`${p}.reattach`, { name }), ['after']);
      const receiver = await connection.receiver(`${p}.reattach`);
      equal(await takeAll(receiver, 2), ['before', 'after'], 'the messages');
    },

    async idle({ p, connect }) {
      const connection = await connect({ idleMs: 1000 });
      const receiver = await connection.receiver(`${p}.idle`);
      const sender = await connection.sender(`${p}.idle`);
      await sleep(3000);
      await sendAll(sender, ['awake']);
      equal(await takeAll(receiver, 1), ['awake'], 'the message');
    },

    async websocket({ p, connect }) {
      const connection = await connect({ websocket: true });
      await sendAll(await connection.sender(`${p}.websocket`), range(10));
      equal(await takeAll(await connection.receiver(`${p}.websocket`), 10), range(10), 'the messages');
    },
  },
};
