// What has come and what was asked for before it came, in order; and how it fails.
'use strict';
const { sleep, within } = require('./check.js');

class Inbox {
  constructor() {
    this.items = [];
    this.waiting = [];
    this.error = null;
  }

  put(item) {
    const first = this.waiting.shift();
    if (first) first.resolve(item);
    else this.items.push(item);
  }

  fail(error) {
    this.error = error;
    for (const each of this.waiting.splice(0)) each.reject(error);
  }

  get(ms, what) {
    if (this.items.length) return Promise.resolve(this.items.shift());
    if (this.error) return Promise.reject(this.error);
    let waiter;
    const coming = new Promise((resolve, reject) => {
      waiter = { resolve, reject };
      this.waiting.push(waiter);
    });
    return within(coming, ms, what).finally(() => {
      this.waiting = this.waiting.filter((each) => each !== waiter);
    });
  }

  async nothing(ms) {
    await sleep(ms);
    if (this.items.length) throw new Error(`expected nothing more, got ${this.items.length} messages`);
    if (this.error) throw this.error;
  }
}

module.exports = { Inbox };
