/**
 * MessagePack, as much of it as commands and events have: maps with string keys, arrays, strings,
 * bytes, numbers, booleans and nil (https://github.com/msgpack/msgpack/blob/master/spec.md).
 *
 * There are no extension types. Integers beyond 2^53 lose their last bits, as in JSON.
 */

import { ProtocolError } from "../errors.js";

const NESTING_MAX = 64;
const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Return a value in MessagePack; keys of objects whose value is undefined are left out.
 *
 * @param {unknown} value
 */
export function encode(value) {
  /** @type {number[]} */
  const out = [];
  write(out, value);
  return Uint8Array.from(out);
}

/**
 * @param {number[]} out
 * @param {any} value
 */
function write(out, value) {
  if (value === null || value === undefined) out.push(0xc0);
  else if (typeof value === "boolean") out.push(value ? 0xc3 : 0xc2);
  else if (typeof value === "number") writeNumber(out, value);
  else if (typeof value === "string") {
    const bytes = encoder.encode(value);
    if (bytes.length < 32) out.push(0xa0 | bytes.length);
    else writeHead(out, bytes.length, [0xd9, 0xda, 0xdb]);
    append(out, bytes);
  } else if (value instanceof Uint8Array) {
    writeHead(out, value.length, [0xc4, 0xc5, 0xc6]);
    append(out, value);
  } else if (Array.isArray(value)) {
    if (value.length < 16) out.push(0x90 | value.length);
    else writeHead(out, value.length, [null, 0xdc, 0xdd]);
    for (const item of value) write(out, item);
  } else {
    const entries = Object.entries(value).filter(([, item]) => item !== undefined);
    if (entries.length < 16) out.push(0x80 | entries.length);
    else writeHead(out, entries.length, [null, 0xde, 0xdf]);
    for (const [key, item] of entries) {
      write(out, key);
      write(out, item);
    }
  }
}

/**
 * @param {number[]} out
 * @param {Uint8Array} bytes
 */
function append(out, bytes) {
  for (const byte of bytes) out.push(byte);
}

/**
 * Write the type byte for a length of 8, 16 or 32 bits, and the length.
 *
 * @param {number[]} out
 * @param {number} length
 * @param {(number | null)[]} types
 */
function writeHead(out, length, [short, middle, long]) {
  if (length < 0x100 && short !== null) out.push(short, length);
  else if (length < 0x10000) out.push(/** @type {number} */ (middle), length >> 8, length & 0xff);
  else {
    out.push(/** @type {number} */ (long));
    out.push(length >>> 24, (length >>> 16) & 0xff, (length >>> 8) & 0xff, length & 0xff);
  }
}

/**
 * @param {number[]} out
 * @param {number} value
 */
function writeNumber(out, value) {
  if (Number.isInteger(value) && value >= 0 && value < 0x80) out.push(value);
  else if (Number.isInteger(value) && value < 0 && value >= -32) out.push(value & 0xff);
  else {
    const view = new DataView(new ArrayBuffer(8));
    if (Number.isSafeInteger(value)) {
      out.push(0xd3);
      view.setBigInt64(0, BigInt(value));
    } else {
      out.push(0xcb);
      view.setFloat64(0, value);
    }
    append(out, new Uint8Array(view.buffer));
  }
}

/**
 * Return the value that some bytes hold, and nothing after it.
 *
 * @param {Uint8Array} bytes
 * @returns {any}
 * @throws {ProtocolError}
 */
export function decode(bytes) {
  const reader = new Reader(bytes);
  const value = reader.value(0);
  if (reader.at !== bytes.length) throw new ProtocolError("There is more after the MessagePack.");
  return value;
}

/** Takes one value after the other; each length is checked against what is there. */
class Reader {
  at = 0;
  #bytes;
  #view;

  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /**
   * @param {number} depth
   * @returns {any}
   */
  value(depth) {
    if (depth > NESTING_MAX) throw new ProtocolError("The MessagePack is nested too deeply.");
    const type = this.#number(1);
    if (type < 0x80) return type;
    if (type < 0x90) return this.#map(type & 0x0f, depth);
    if (type < 0xa0) return this.#array(type & 0x0f, depth);
    if (type < 0xc0) return this.#text(type & 0x1f);
    if (type >= 0xe0) return type - 0x100;
    switch (type) {
      case 0xc0:
        return null;
      case 0xc2:
        return false;
      case 0xc3:
        return true;
      case 0xc4:
      case 0xc5:
      case 0xc6:
        return this.#take(this.#number(1 << (type - 0xc4)));
      case 0xca:
        return this.#view.getFloat32(this.#skip(4));
      case 0xcb:
        return this.#view.getFloat64(this.#skip(8));
      case 0xcc:
      case 0xcd:
      case 0xce:
        return this.#number(1 << (type - 0xcc));
      case 0xcf:
        return Number(this.#view.getBigUint64(this.#skip(8)));
      case 0xd0:
        return this.#view.getInt8(this.#skip(1));
      case 0xd1:
        return this.#view.getInt16(this.#skip(2));
      case 0xd2:
        return this.#view.getInt32(this.#skip(4));
      case 0xd3:
        return Number(this.#view.getBigInt64(this.#skip(8)));
      case 0xd9:
      case 0xda:
      case 0xdb:
        return this.#text(this.#number(1 << (type - 0xd9)));
      case 0xdc:
      case 0xdd:
        return this.#array(this.#number(2 << (type - 0xdc)), depth);
      case 0xde:
      case 0xdf:
        return this.#map(this.#number(2 << (type - 0xde)), depth);
      default:
        throw new ProtocolError(`MessagePack of type ${type} is not used here.`);
    }
  }

  /** @param {number} count */
  #skip(count) {
    const at = this.at;
    if (count > this.#bytes.length - at) throw new ProtocolError("The MessagePack is cut off.");
    this.at += count;
    return at;
  }

  /** @param {number} size in bytes: 1, 2 or 4 */
  #number(size) {
    const at = this.#skip(size);
    if (size === 1) return this.#view.getUint8(at);
    return size === 2 ? this.#view.getUint16(at) : this.#view.getUint32(at);
  }

  /** @param {number} length */
  #take(length) {
    const at = this.#skip(length);
    return this.#bytes.slice(at, at + length);
  }

  /** @param {number} length */
  #text(length) {
    const at = this.#skip(length);
    return utf8(this.#bytes.subarray(at, at + length));
  }

  /**
   * @param {number} length
   * @param {number} depth
   */
  #array(length, depth) {
    const items = [];
    for (let i = 0; i < length; i++) items.push(this.value(depth + 1));
    return items;
  }

  /**
   * @param {number} length
   * @param {number} depth
   */
  #map(length, depth) {
    /** @type {[any, any][]} */
    const entries = [];
    for (let i = 0; i < length; i++) entries.push([this.value(depth + 1), this.value(depth + 1)]);
    return Object.fromEntries(entries);
  }
}

/**
 * Return the text that some bytes are.
 *
 * @param {Uint8Array} bytes
 * @throws {ProtocolError} when they are not UTF-8
 */
export function utf8(bytes) {
  try {
    return decoder.decode(bytes);
  } catch {
    throw new ProtocolError("A string is not valid UTF-8.");
  }
}
