// Takes locks with redlock and ioredis at two gateways: node locks.js HOST:PORT HOST:PORT. After the first tests,
// holders compete for one lock until standard input ends, and each ten rounds are a line of the output.
'use strict';

const assert = require('node:assert');
const Redis = require('ioredis');
const Redlock = require('redlock');

const clients = process.argv.slice(2).map((addr) => {
  const [host, port] = addr.split(':');
  return new Redis({ host, port: Number(port) });
});
const locker = (client, retryCount) => new Redlock([client], { retryCount, retryDelay: 20, retryJitter: 10 });
const [a, b] = clients.map((client) => locker(client, 0));

// gone waits until a key has ended.
async function gone(key) {
  while ((await clients[1].get(key)) !== null);
}

// token returns the fencing token of a lock while its holder has it.
async function token(client, lock) {
  const rev = await client.call('KV.REV', lock.resource[0], lock.value);
  assert.notEqual(rev, null, 'the lock is lost');
  return rev;
}

async function renews() {
  const held = await a.lock('renewed', 30000);
  await assert.rejects(b.lock('renewed', 30000), 'two have the lock');
  const renewed = await held.extend(60000);
  assert((await clients[1].pttl('renewed')) > 50000, 'the lock is not renewed');
  await clients[0].pexpire('renewed', 1);
  await gone('renewed');
  await assert.rejects(renewed.extend(30000), 'a lock that has expired is renewed');
}

async function releases() {
  const former = await a.lock('released', 1000);
  await gone('released');
  const holder = await b.lock('released', 30000);
  await assert.rejects(former.unlock(), 'the former holder releases');
  assert.equal(await clients[0].get('released'), holder.value);
  await holder.unlock();
  assert.equal(await clients[0].get('released'), null);
}

// A resource that refuses a token below one that it has seen.
let highest = 0;
function write(token) {
  if (token < highest) throw new Error(`token ${token} is refused after ${highest}`);
  highest = token;
}

async function isRefused() {
  const paused = await a.lock('paused', 1000);
  const old = await token(clients[0], paused);
  write(old);
  await gone('paused'); // it was paused for longer than the lock's time
  write(await token(clients[1], await b.lock('paused', 30000)));
  assert.throws(() => write(old), /refused/);
}

let holder = null;
let rounds = 0;
let ended = false;

async function compete(client) {
  const mine = locker(client, 500);
  while (!ended) {
    let lock;
    try {
      lock = await mine.lock('faults', 3000);
    } catch {
      continue; // another client has it, or the outcome is unknown
    }
    assert(!holder || holder.expiration < Date.now(), 'two have the lock');
    holder = lock;
    try {
      const rev = await token(client, lock);
      if (lock.expiration > Date.now()) write(rev);
      holder = lock = await lock.extend(3000);
    } catch (err) {
      if (lock.expiration > Date.now() && /refused/.test(err.message)) throw err;
    }
    if (holder === lock) holder = null;
    await lock.unlock().catch(() => {}); // it ends at its time
    if (++rounds % 10 === 0) console.log('rounds', rounds);
  }
}

async function main() {
  await renews();
  await releases();
  await isRefused();
  highest = 0;
  process.stdin.resume().on('end', () => { ended = true; });
  await Promise.all([...clients, ...clients].map(compete));
  clients.forEach((client) => client.disconnect());
}

main().catch((err) => {
  console.error(err);
  process.exit(1);
});
