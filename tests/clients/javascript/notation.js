// The notation of ../README.md to and from rhea's typed values.
'use strict';
const { NotAvailable } = require('./check.js');

const SECTIONS = {
  'message-annotations': 0x72, properties: 0x73, 'application-properties': 0x74,
  data: 0x75, sequence: 0x76, value: 0x77, footer: 0x78,
};
const FIELDS = { 'message-id': 0, 'correlation-id': 5 };

const hex = (text) => Buffer.from(text, 'hex');

// Eight bytes, as numbers in JavaScript have 53 bits.
function eight(text) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64BE(BigInt.asIntN(64, BigInt(text)));
  return bytes;
}

const TO_TYPED = {
  null: (types) => types.Null(),
  boolean: (types, value) => types.wrap_boolean(value),
  ubyte: (types, value) => types.wrap_ubyte(Number(value)),
  ushort: (types, value) => types.wrap_ushort(Number(value)),
  uint: (types, value) => types.wrap_uint(Number(value)),
  ulong: (types, value) => types.wrap_ulong(eight(value)),
  byte: (types, value) => types.wrap_byte(Number(value)),
  short: (types, value) => types.wrap_short(Number(value)),
  int: (types, value) => types.wrap_int(Number(value)),
  long: (types, value) => types.wrap_long(eight(value)),
  float: (types, value) => types.wrap_float(hex(value).readFloatBE()),
  double: (types, value) => types.wrap_double(hex(value).readDoubleBE()),
  decimal32: (types, value) => types.Decimal32(hex(value)),
  decimal64: (types, value) => types.Decimal64(hex(value)),
  decimal128: (types, value) => types.Decimal128(hex(value)),
  char: (types, value) => types.wrap_char(Number(value)),
  timestamp: (types, value) => types.wrap_timestamp(Number(value)),
  uuid: (types, value) => types.wrap_uuid(hex(value.replaceAll('-', ''))),
  binary: (types, value) => types.wrap_binary(hex(value)),
  string: (types, value) => types.wrap_string(value),
  symbol: (types, value) => types.wrap_symbol(value),
  list: (types, value) => types.wrap_list(value.map((each) => toTyped(types, each))),
  map: (types, value) =>
    types.wrap_map_as_map(new Map(value.map((pair) => pair.map((each) => toTyped(types, each))))),
  array: (types, { of, values }) => {
    const codes = { int: [types.Int, Number], symbol: [types.Sym8, String] };
    const [type, read] = codes[of];
    return types.wrap_array(values.map(read), type.typecode);
  },
  described: () => {
    throw new NotAvailable('a typed value has one descriptor, and the section takes it');
  },
};

function toTyped(types, { type, value }) {
  return TO_TYPED[type](types, value);
}

// The message of a case of types.json.
function toMessage({ types, message }, { section, value }) {
  const typed = toTyped(types, value);
  switch (section) {
    case 'value': return { body: typed };
    case 'data': return { body: message.data_section(typed) };
    case 'sequence': return { body: message.sequence_section(typed) };
    case 'application-properties': return { application_properties: { k: typed } };
    case 'message-annotations': return { message_annotations: { k: typed } };
    case 'footer': throw new NotAvailable('the footer is written in front of the body (AMQP 1.0 §3.2)');
    case 'message-id': return { message_id: typed };
    case 'correlation-id': return { correlation_id: typed };
    default: throw new Error(`no section ${section}`);
  }
}

const number = (value) => (Buffer.isBuffer(value) ? value.readBigInt64BE().toString() : `${value}`);
const unsigned = (value) => (Buffer.isBuffer(value) ? value.readBigUInt64BE().toString() : `${value}`);
const bytes = (value) => value.toString('hex');
const itself = (value) => value;

function float(value) {
  const found = Buffer.alloc(4);
  found.writeFloatBE(value);
  return bytes(found);
}

function double(value) {
  const found = Buffer.alloc(8);
  found.writeDoubleBE(value);
  return bytes(found);
}

function pairs(value) {
  const found = [];
  for (let i = 0; i < value.length; i += 2) found.push([fromValue(value[i]), fromValue(value[i + 1])]);
  return found;
}

const FROM_TYPED = [
  ['null', ['Null'], () => null],
  ['boolean', ['Boolean', 'True', 'False'], Boolean],
  ['ubyte', ['Ubyte'], number],
  ['ushort', ['Ushort'], number],
  ['uint', ['Uint', 'SmallUint', 'Uint0'], number],
  ['ulong', ['Ulong', 'SmallUlong', 'Ulong0'], unsigned],
  ['byte', ['Byte'], number],
  ['short', ['Short'], number],
  ['int', ['Int', 'SmallInt'], number],
  ['long', ['Long', 'SmallLong'], number],
  ['float', ['Float'], float],
  ['double', ['Double'], double],
  ['decimal32', ['Decimal32'], bytes],
  ['decimal64', ['Decimal64'], bytes],
  ['decimal128', ['Decimal128'], bytes],
  ['char', ['CharUTF32'], number],
  ['timestamp', ['Timestamp'], (value) => `${value.getTime()}`],
  ['uuid', ['Uuid'], (value) => bytes(value).replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')],
  ['binary', ['Vbin8', 'Vbin32'], bytes],
  ['string', ['Str8', 'Str32'], itself],
  ['symbol', ['Sym8', 'Sym32'], itself],
  ['list', ['List0', 'List8', 'List32'], (value) => value.map(fromValue)],
  ['map', ['Map8', 'Map32'], pairs],
  ['array', ['Array8', 'Array32'], (value) => {
    const items = value.map(fromValue);
    return { of: items[0].type, values: items.map((each) => each.value) };
  }],
];
const BY_NAME = new Map(FROM_TYPED.flatMap(([type, names, read]) => names.map((name) => [name, { type, read }])));

function fromValue(typed) {
  const { type, read } = BY_NAME.get(typed.type.name);
  return { type, value: read(typed.value) };
}

// The value of a case, out of the typed sections of a message (a list of { code, typed }).
function fromTyped(sections, section) {
  const field = FIELDS[section];
  const code = SECTIONS[field === undefined ? section : 'properties'];
  const found = sections.find((each) => each.code === code);
  if (!found) throw new Error(`no ${section} came`);
  if (field !== undefined) return fromValue(found.typed.value[field]);
  if (['value', 'data', 'sequence'].includes(section)) {
    if (section === 'value' && found.typed.isDescribed) {
      throw new NotAvailable('of several descriptors the reader keeps the first, which is the section');
    }
    return fromValue(found.typed);
  }
  return fromValue(found.typed.value[1]);
}

// An encoded message's sections, read with rhea's own reader and not yet made plain JavaScript values.
function sectionsOf({ types }, encoded) {
  const reader = new types.Reader(encoded);
  const found = [];
  while (reader.remaining()) {
    const start = reader.position;
    const typed = reader.read();
    typed.isDescribed = isDescribedTwice(types, encoded, start);
    found.push({ code: Number(typed.descriptor.value), typed });
  }
  return found;
}

function isDescribedTwice(types, encoded, start) {
  const reader = new types.Reader(encoded);
  reader.skip(start);
  return reader.read_constructor().descriptors !== undefined;
}

module.exports = { fromTyped, sectionsOf, toMessage };
