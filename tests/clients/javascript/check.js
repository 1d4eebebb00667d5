// What a feature says when something isn't as it must be, and how long it waits.
'use strict';

// The broker closed a link or a connection, or didn't attach it, with this condition.
class Refused extends Error {
  constructor(condition, description) {
    super(`${condition}: ${description || ''}`);
    this.condition = condition;
  }
}

// The library's API can't express it.
class NotAvailable extends Error {}

function equal(found, wanted, what) {
  const [one, other] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (one !== other) throw new Error(`${what}: expected ${other}, got ${one}`);
}

function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function within(promise, ms, what) {
  let timer;
  const late = new Promise((resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no ${what} within ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// That a link is refused, with that condition.
async function refused(attaching, condition) {
  try {
    await attaching;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    equal(error.condition, condition, 'the condition');
    return;
  }
  throw new Error(`attached, expected ${condition}`);
}

module.exports = { NotAvailable, Refused, equal, refused, sleep, within };
