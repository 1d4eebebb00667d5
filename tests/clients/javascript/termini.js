// The source or target that a link's options ask for (AMQP 1.0 §3.5.3, §3.5.4).
'use strict';

const NO_LOCAL = 'apache.org:no-local-filter:list';
const STATE = 2;

function asked(address, { capability }) {
  const fields = {};
  if (address !== null) fields.address = address;
  if (capability) fields.capabilities = capability;
  return fields;
}

function filters({ filter, types }, { selector, noLocal }) {
  return {
    ...(selector ? filter.selector(selector) : {}),
    ...(noLocal ? { 'no-local': types.wrap_described([], NO_LOCAL) } : {}),
  };
}

function sourceOf(library, address, options) {
  const fields = asked(address, options);
  if (options.dynamic) fields.dynamic = true;
  if (options.browse) fields.distribution_mode = 'copy';
  if (options.durable) Object.assign(fields, { durable: STATE, expiry_policy: 'never' });
  if (options.selector || options.noLocal) fields.filter = filters(library, options);
  return fields;
}

module.exports = { sourceOf, targetOf: asked };
