// Local transactions with rhea, which has no API for them: a JSON line for each step, {"step": …, "got": …}.
// The coordinator's target and the states are plain described values. A transfer of rhea's bears no state, so
// that posting needs its frame completed. `transactions.js ADDRESS`
'use strict';
const rhea = require('rhea');
const frames = require('rhea/lib/frames.js');
const message = require('rhea/lib/message.js');
const types = rhea.types;

const described = (code, fields) => types.described(types.wrap_ulong(code), types.wrap_list(fields));
const transactional = (id, outcome) => described(0x34, outcome ? [types.wrap_binary(id), outcome] : [types.wrap_binary(id)]);
const ACCEPTED = 0x24;
let posting = null;
types.wrap_delivery_state = (state) => state;
const { transfer } = frames;
frames.transfer = (fields) => transfer(posting ? { ...fields, state: transactional(posting) } : fields);
// A state that rhea doesn't know stays as it came.
const { unwrap_outcome } = message;
message.unwrap_outcome = (state) => ([0x33, 0x34].includes(Number(state.descriptor.value)) ? state : unwrap_outcome(state));

const say = (step, got) => console.log(JSON.stringify({ step, got }));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const url = new URL(process.env.URL.replace('amqp:', 'http:'));
const container = rhea.create_container();
const connection = container.connect({ host: url.hostname, port: url.port, username: 'anonymous', reconnect: false });
const inbox = [];
const address = process.argv[2];
const sender = connection.open_sender(address);
connection.open_receiver({ source: address, autoaccept: false, autosettle: false }).on('message', (context) => inbox.push(context));
const controller = connection.open_sender({});
controller.local.attach.target = described(0x30, []);

const settled = (delivery) => new Promise((resolve) => {
  const timer = setInterval(() => {
    if (!delivery.remote_settled) return;
    clearInterval(timer);
    resolve(delivery.remote_state);
  }, 5);
});
// A described body loses its descriptor in rhea's encoder, so that requests are bytes.
const request = (...fields) => settled(controller.send(Buffer.from([0, 0x53, 0x77, 0, 0x53, ...fields]), undefined, 0));
const declare = async () => Buffer.from((await request(0x31, 0x45)).value[0].value);
const discharge = async (id, fail) => {
  const state = await request(0x32, 0xc0, id.length + 4, 2, 0xa0, id.length, ...id, fail ? 0x41 : 0x42);
  return state.error ? state.error.condition : state.constructor.composite_type;
};
const post = async (id, body) => {
  posting = id;
  const delivery = sender.send({ body });
  await pause(20);
  posting = null;
  return settled(delivery);
};
const next = async () => {
  for (let turn = 0; turn < 100 && inbox.length === 0; turn++) await pause(5);
  return inbox.shift();
};
const text = (context) => (context ? context.message.body : null);
const take = async () => {
  const came = await next();
  if (came) came.delivery.accept();
  return text(came);
};

async function main() {
  await new Promise((resolve) => controller.once('sendable', resolve));
  await pause(100);
  let id = await declare();
  await post(id, 'committed');
  say('before the commit', await take());
  say('commit', await discharge(id, false));
  say('after the commit', await take());
  id = await declare();
  await post(id, 'rolled back');
  say('rollback', await discharge(id, true));
  say('after the rollback', await take());
  say('unknown id', await discharge(id, false));
  for (const fail of [true, false]) {
    if (fail) sender.send({ body: 'taken' });
    id = await declare();
    const came = await next();
    say('taken', [text(came), came.message.delivery_count || 0]);
    came.delivery.update(true, transactional(id, described(ACCEPTED, [])));
    await pause(20);
    say(fail ? 'rollback' : 'commit', await discharge(id, fail));
  }
  say('at last', await take());
  connection.close();
}

main().catch((fault) => {
  console.error(fault);
  process.exit(1);
});
