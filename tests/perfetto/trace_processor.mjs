#!/usr/bin/env node
// Runs Perfetto's own trace processor, as its UI does, on traces and some queries.
//
//     node trace_processor.mjs UI TRACE... -- SQL...
//
// UI is a folder of a built Perfetto UI, with engine_bundle.js and the .wasm files. The traces are loaded one after the
// other, each alone, and standard error tells how long that took. Prints a line for each query of each trace: {"columns": [...], "rows": [[...], ...]}, blobs as
// {"blob": BYTES}. Exit 1, with the reason on standard error, if a trace or a query is refused; 2 if the trace
// processor itself fails.
//
// The bundle is a web worker. What it finds here looks like one: it is told a port, loads its WebAssembly with fetch,
// and then takes and gives streams of TraceProcessorRpc messages over the port.
import fs from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import vm from 'node:vm';

const [ui, ...rest] = process.argv.slice(2);
const traces = rest.slice(0, Math.max(rest.indexOf('--'), 0));
const queries = rest.slice(traces.length + 1);
if (!traces.length) {
  console.error('usage: trace_processor.mjs UI TRACE... -- SQL...');
  process.exit(2);
}

// --- protobuf ---------------------------------------------------------------------------------------------

const VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5;

function varint(value) {
  const bytes = [];
  for (; value >= 128; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Buffer.from([...bytes, value]);
}
const uintField = (field, value) => Buffer.concat([varint(field * 8 + VARINT), varint(value)]);
const bytesField = (field, bytes) => Buffer.concat([varint(field * 8 + LENGTH), varint(bytes.length), bytes]);

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }
  get more() {
    return this.at < this.bytes.length;
  }
  // As a BigInt, since 64 bits are more than a number holds; seven bytes of it are no more than that.
  varint() {
    let low = 0, factor = 1, high = 0n;
    for (let count = 0; ; count++) {
      const byte = this.bytes[this.at++];
      if (byte === undefined) throw new Error('an answer ends within a number');
      if (count < 7) {
        low += (byte & 127) * factor;
        factor *= 128;
      } else high |= BigInt(byte & 127) << BigInt(7 * count);
      if (byte < 128) return high | BigInt(low);
    }
  }
  take(length) {
    this.at += length;
    if (this.at > this.bytes.length) throw new Error('an answer ends within a field');
    return this.bytes.subarray(this.at - length, this.at);
  }
  *fields() {
    while (this.more) {
      const tag = Number(this.varint());
      const wire = tag & 7;
      let value;
      if (wire === VARINT) value = this.varint();
      else if (wire === LENGTH) value = this.take(Number(this.varint()));
      else if (wire === FIXED64) value = this.take(8);
      else if (wire === FIXED32) value = this.take(4);
      else throw new Error(`an answer has a field of wire type ${wire}`);
      yield [tag >> 3, value];
    }
  }
}
const fieldsOf = (bytes) => new Reader(bytes).fields();
const fieldOf = (bytes, wanted) => [...fieldsOf(bytes)].find(([field]) => field === wanted)?.[1];

// --- the worker -------------------------------------------------------------------------------------------

function file(url) {
  const bytes = fs.readFileSync(path.join(ui, path.basename(String(url))));
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
}

let answers = [];
let unread = Buffer.alloc(0);
let ready;

// The next message of a stream, if all of it is there: fields 1 of a message without end.
function messageIn(reader) {
  const head = reader.bytes.subarray(0, 16);
  if (!head.subarray(1).some((byte) => byte < 128)) return undefined;
  if (head[0] !== 8 + LENGTH) throw new Error(`a stream of answers begins with ${head[0]}`);
  reader.at = 1;
  const length = Number(reader.varint());
  return reader.at + length > reader.bytes.length ? undefined : reader.take(length);
}

const started = new Promise((resolve) => (ready = resolve));
const port = {
  // The worker sets it when its WebAssembly runs.
  set onmessage(handler) {
    this.send = (bytes) => handler({ data: new Uint8Array(bytes) });
    ready();
  },
  // A stream: a long message comes in pieces.
  postMessage(bytes) {
    unread = Buffer.concat([unread, Buffer.from(bytes)]);
    let reader, whole;
    while ((whole = messageIn((reader = new Reader(unread))))) {
      answers.push(whole);
      unread = unread.subarray(reader.at);
    }
  },
};

const location = { href: 'http://127.0.0.1/engine_bundle.js', origin: 'http://127.0.0.1', protocol: 'http:' };
Object.assign(globalThis, {
  self: globalThis,
  location,
  WorkerGlobalScope: function () {},
  importScripts() {},
  fetch: async (url) => ({ ok: true, status: 200, url: String(url), arrayBuffer: async () => file(url) }),
  XMLHttpRequest: class {
    open(_method, url) {
      this.url = url;
    }
    send() {
      this.response = file(this.url);
      this.status = 200;
    }
  },
});
const { error } = console;
for (const level of ['log', 'debug', 'info', 'warn', 'error']) console[level] = () => {};
// Code that looks for a process takes this for Node, and not for a browser.
globalThis.process = undefined;
vm.runInThisContext(fs.readFileSync(path.join(ui, 'engine_bundle.js'), 'utf8'), 'engine_bundle.js');

// The bundle waits for its WebAssembly, and Node leaves when nothing is to be done.
const waiting = setInterval(() => {}, 1000);
globalThis.onmessage({ data: port });
await started;
clearInterval(waiting);
globalThis.process = process;

// --- requests ---------------------------------------------------------------------------------------------

const APPEND = 1, FINALIZE = 2, QUERY = 3, RESET = 11;
let requests = 0;

function fail(status, message) {
  error(message);
  process.exit(status);
}

function request(method, argument = Buffer.alloc(0)) {
  const message = Buffer.concat([uintField(1, requests++), uintField(2, method), argument]);
  answers = [];
  port.send(bytesField(1, message));
  for (const answer of answers) {
    const fatal = fieldOf(answer, 5);
    if (fatal) fail(2, `the trace processor failed: ${fatal}`);
  }
  return answers;
}

// The field of each answer with the result of the method, and the text of an error in it.
function check(all, result, errorField) {
  for (const answer of all) {
    const found = fieldOf(answer, result);
    const text = found && fieldOf(found, errorField);
    if (text?.length) fail(1, `${loading} is refused: ${text}`);
  }
}

let loading;

function load(trace) {
  if (loading) request(RESET);
  loading = trace;
  const began = performance.now();
  const descriptor = fs.openSync(trace, 'r');
  const piece = Buffer.alloc(16 << 20);
  for (;;) {
    const read = fs.readSync(descriptor, piece);
    if (read === 0) break;
    check(request(APPEND, bytesField(101, piece.subarray(0, read))), 201, 2);
  }
  fs.closeSync(descriptor);
  check(request(FINALIZE), 212, 1);
  error(`loaded in ${(performance.now() - began) / 1000} s`);
}

// The cells of a batch: their types, and for each type the values one behind the other.
function* cells(batch) {
  const types = [], integers = [], doubles = [], blobs = [];
  let texts = [];
  for (const [field, value] of fieldsOf(batch)) {
    if (field === 1) types.push(...(typeof value === 'bigint' ? [Number(value)] : value));
    if (field === 2 && typeof value === 'bigint') integers.push(value);
    else if (field === 2) for (const reader = new Reader(value); reader.more; ) integers.push(reader.varint());
    if (field === 3) for (let at = 0; at < value.length; at += 8) doubles.push(value.readDoubleLE(at));
    if (field === 4) blobs.push(value.length);
    if (field === 5) texts = value.toString().split('\0');
  }
  let integer = 0, real = 0, blob = 0, text = 0;
  for (const type of types) {
    if (type === 1) yield 'null';
    else if (type === 2) yield String(BigInt.asIntN(64, integers[integer++]));
    else if (type === 3) yield double(doubles[real++]);
    else if (type === 4) yield JSON.stringify(texts[text++]);
    else if (type === 5) yield `{"blob": ${blobs[blob++]}}`;
    else throw new Error(`an answer has a cell of type ${type}`);
  }
}

// JSON has neither infinities nor, for most readers, doubles without a point.
function double(value) {
  if (!Number.isFinite(value)) return JSON.stringify(String(value));
  const text = String(value);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

function query(sql) {
  const columns = [], values = [];
  for (const answer of request(QUERY, bytesField(103, bytesField(1, Buffer.from(sql))))) {
    for (const [field, value] of fieldsOf(fieldOf(answer, 203) ?? Buffer.alloc(0))) {
      if (field === 1) columns.push(value.toString());
      if (field === 2 && value.length) fail(1, `${loading}: the query is refused: ${value}\n${sql}`);
      if (field === 3) for (const cell of cells(value)) values.push(cell);
    }
  }
  const rows = [];
  for (let at = 0; at < values.length; at += columns.length) rows.push(`[${values.slice(at, at + columns.length)}]`);
  return `{"columns": ${JSON.stringify(columns)}, "rows": [${rows}]}\n`;
}

const output = traces.flatMap((trace) => {
  load(trace);
  return queries.map(query);
});
// Leaving before it is written would cut it.
process.stdout.write(output.join(''), () => process.exit(0));
