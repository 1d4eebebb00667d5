// Features of topics and their subscriptions.
'use strict';
const { equal } = require('./check.js');
const { range, sendAll, sorted, takeAll } = require('./queues.js');

module.exports = {
  features: {
    async topic({ p, connect }) {
      const connection = await connect();
      const sender = await connection.sender(`${p}.news.all`);
      await sendAll(sender, ['before']);
      const receivers = [await connection.receiver(`${p}.news.all`), await connection.receiver(`${p}.news.all`)];
      await sendAll(sender, range(10));
      for (const receiver of receivers) {
        equal(await takeAll(receiver, 10), range(10), 'what a receiver gets');
        await receiver.nothing(100);
      }
    },

    async wildcard({ p, connect }) {
      const connection = await connect();
      const europe = await connection.receiver(`${p}.news.eu.*`);
      const world = await connection.receiver(`${p}.news.>`);
      await sendAll(await connection.sender(`${p}.news.eu.fr`), ['fr']);
      await sendAll(await connection.sender(`${p}.news.us.ny`), ['ny']);
      equal(await takeAll(world, 2), ['fr', 'ny'], `what ${p}.news.> gets`);
      equal(await takeAll(europe, 1), ['fr'], `what ${p}.news.eu.* gets`);
      await europe.nothing(200);
    },

    async 'durable-subscription'({ p, connect }) {
      const [address, container] = [`${p}.news.durable`, `${p}-durable`];
      const lasting = { name: `${p}-sub`, durable: true };
      const publisher = await (await connect()).sender(address);
      const first = await connect({ container });
      await (await first.receiver(address, lasting)).detach();
      await first.close();
      await sendAll(publisher, ['meanwhile']);
      const second = await connect({ container });
      const again = await second.receiver(address, lasting);
      equal(await takeAll(again, 1), ['meanwhile'], 'what was kept');
      await again.close();
      await sendAll(publisher, ['between']);
      const anew = await second.receiver(address, lasting);
      await sendAll(publisher, ['after']);
      equal(await takeAll(anew, 1), ['after'], 'what a new subscription gets');
      await anew.nothing(200);
      await anew.close();
    },

    async 'shared-subscription'({ p, connect }) {
      const address = `${p}.news.shared`;
      const connection = await connect();
      const receivers = [];
      for (const number of [1, 2]) {
        const name = `${p}-shared|${number}`;
        receivers.push(await connection.receiver(address, { name, capability: 'shared', credit: 5 }));
      }
      await sendAll(await connection.sender(address), range(10));
      const bodies = [...(await takeAll(receivers[0], 5)), ...(await takeAll(receivers[1], 5))];
      equal(sorted(bodies), range(10), 'what both get');
    },

    async 'shared-durable'({ p, connect }) {
      const [address, container] = [`${p}.news.shared-durable`, `${p}-shared-durable`];
      const options = (number) => ({
        name: `${p}-kept|${number}`, capability: 'shared', durable: true, credit: 5,
      });
      const receivers = [];
      for (const number of [1, 2]) {
        receivers.push(await (await connect({ container })).receiver(address, options(number)));
      }
      const publisher = await (await connect()).sender(address);
      await sendAll(publisher, range(10));
      const bodies = [...(await takeAll(receivers[0], 5)), ...(await takeAll(receivers[1], 5))];
      equal(sorted(bodies), range(10), 'what both get');
      for (const receiver of receivers) await receiver.detach();
      await sendAll(publisher, range(3));
      const again = await (await connect({ container })).receiver(address, options(1));
      equal(await takeAll(again, 3), range(3), 'what was kept');
      await again.close();
    },

    async 'no-local'({ p, connect }) {
      const [own, other] = [await connect(), await connect()];
      const receiver = await own.receiver(`${p}.news.local`, { noLocal: true });
      await sendAll(await own.sender(`${p}.news.local`), ['own']);
      await sendAll(await other.sender(`${p}.news.local`), ['other']);
      equal(await takeAll(receiver, 1), ['other'], 'what is received');
      await receiver.nothing(200);
    },
  },
};
