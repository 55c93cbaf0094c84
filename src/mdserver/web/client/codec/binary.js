/**
 * The binary form of the protocol (docs/protocol.md, "Binary"): frames of commands and events in
 * MessagePack, and messages.
 *
 * A message is by far the most frequent event, so it has payloads of its own: UPDATE_TEXT and
 * UPDATE_BYTES for a plain one, MESSAGE for one with anything else to tell. Subjects travel as
 * numbers, *aliases*, that the server agrees on a connection before it uses them.
 */

import { FIELDS_MAX, PAYLOAD_BYTES_MAX } from "../core/limits.js";
import { ProtocolError } from "../errors.js";
import { checkedEvent } from "./events.js";
import { decode, encode, utf8 } from "./msgpack.js";

const MEDIA_TYPE = "application/vnd.mdserver.v1";
const COMMAND = 0x01;
const EVENT = 0x02;
const ALIAS = 0x03;
const UPDATE_TEXT = 0x04;
const UPDATE_BYTES = 0x05;
const MESSAGE = 0x06;
const SKIPPABLE = 0x80;
const ALIASES_MAX = 2 ** 21;
const LENGTH_BYTES_MAX = 4;

const TYPES = /** @type {const} */ (["UPDATE", "SNAPSHOT", "RECOVERED", "HISTORICAL"]);
const TEXT = 1 << 2;
const STANDARD = 1 << 3;
const NOT_RETAINED = 1 << 4;
const COMPRESSED = 1 << 5;
const ALIASED = 1 << 6;
const MATCH = 1 << 7;
const FIELDS = 1 << 8;
const CLOSURE = 1 << 9;
const REPLY_SUBJECT = 1 << 10;
const PREV = 1 << 11;
const FLAGS_MAX = (1 << 12) - 1;

/**
 * What an alias stands for; `match` is the pattern that messages came through.
 *
 * @typedef {{subject: string, match: string | undefined, epoch: number, base: number}} Alias
 * @typedef {import("./events.js").MessageEvent} MessageEvent
 */

/** A client's side, with the aliases that were agreed on one connection. */
export class BinaryCodec {
  subprotocol = "mdserver.v1";
  mediaTypes = { commands: MEDIA_TYPE, events: MEDIA_TYPE };
  /** @type {Map<number, Alias>} */
  #aliases = new Map();

  /** Return what puts a stream's payloads together. */
  joiner() {
    return new FrameJoiner();
  }

  /**
   * Return one command as one frame.
   *
   * @param {Record<string, any>} command
   */
  command(command) {
    const { content, ...rest } = command;
    const isBytes = content instanceof Uint8Array;
    const payload = encode(isBytes ? { ...rest, content_base64: content } : command);
    const head = [COMMAND];
    for (let left = payload.length; ; left >>>= 7) {
      head.push(left > 0x7f ? (left & 0x7f) | 0x80 : left);
      if (left <= 0x7f) break;
    }
    return this.join([Uint8Array.from(head), payload]);
  }

  /**
   * Return frames in a row: they say themselves where they end.
   *
   * @param {Uint8Array[]} frames
   */
  join(frames) {
    const joined = new Uint8Array(frames.reduce((sum, frame) => sum + frame.length, 0));
    let at = 0;
    for (const frame of frames) {
      joined.set(frame, at);
      at += frame.length;
    }
    return joined;
  }

  /**
   * Decode the frames of one message.
   *
   * @param {Uint8Array} payload
   * @throws {ProtocolError} when the server broke a rule
   */
  events(payload) {
    /** @type {import("./events.js").WireEvent[]} */
    const events = [];
    let at = 0;
    while (at < payload.length) {
      const end = frameEnd(payload, at);
      if (end === null || end > payload.length) {
        throw new ProtocolError(`The frame at byte ${at} of the message is cut off.`);
      }
      this.#frame(payload[at], new Reader(payload, bodyStart(payload, at), end), events);
      at = end;
    }
    return events;
  }

  /**
   * @param {number} kind
   * @param {Reader} read
   * @param {import("./events.js").WireEvent[]} events
   */
  #frame(kind, read, events) {
    if (kind === UPDATE_TEXT || kind === UPDATE_BYTES) {
      const { subject, match, epoch, base } = this.#alias(read.number());
      const seq = base + read.number();
      const content = kind === UPDATE_TEXT ? read.textToEnd() : read.bytesToEnd();
      events.push({ op: "message", subject, type: "UPDATE", epoch, seq, content, match });
    } else if (kind === MESSAGE) {
      events.push(this.#message(read));
    } else if (kind === ALIAS) {
      const number = read.number();
      if (number >= ALIASES_MAX) {
        throw new ProtocolError(`Alias ${number} is beyond ${ALIASES_MAX - 1}.`);
      }
      const [epoch, base] = [read.number(), read.number()];
      const subject = read.text();
      this.#aliases.set(number, { subject, match: read.textToEnd() || undefined, epoch, base });
    } else if (kind === EVENT) {
      const event = checkedEvent(decode(read.bytesToEnd()));
      if (event?.op === "message") throw new ProtocolError("A message came as an event.");
      if (event !== null) events.push(event);
    } else if (!(kind & SKIPPABLE)) {
      throw new ProtocolError(`There is no frame of type ${kind} here.`);
    }
  }

  /**
   * @param {Reader} read
   * @returns {MessageEvent}
   */
  #message(read) {
    const flags = read.number();
    if (flags > FLAGS_MAX) {
      throw new ProtocolError(`A message has flags ${flags}; version 1 has none of these.`);
    }
    const alias = flags & ALIASED ? this.#alias(read.number()) : undefined;
    const isStandard = Boolean(flags & STANDARD);
    /** @type {MessageEvent} */
    const event = {
      op: "message",
      subject: alias?.subject ?? read.text(),
      type: TYPES[flags & 3],
      epoch: isStandard ? 0 : read.number(),
      seq: isStandard ? 0 : read.number(),
      match: alias?.match,
      content: "",
    };
    if (isStandard) event.qos = "STANDARD";
    if (flags & NOT_RETAINED) event.retained = false;
    if (flags & COMPRESSED) event.compressed = true;
    if (flags & MATCH) event.match = read.text();
    if (flags & FIELDS) event.fields = read.fields();
    if (flags & CLOSURE) event.closure = read.text();
    if (flags & REPLY_SUBJECT) event.reply_subject = read.text();
    if (flags & PREV) event.prev = [read.number(), read.number()];
    event.content = flags & TEXT ? read.textToEnd() : read.bytesToEnd();
    return event;
  }

  /** @param {number} number */
  #alias(number) {
    const alias = this.#aliases.get(number);
    if (alias === undefined) {
      throw new ProtocolError(`A message names alias ${number}, which was never agreed.`);
    }
    return alias;
  }
}

/** Puts the frames of a stream together that come in any pieces; gives whole frames. */
class FrameJoiner {
  #rest = new Uint8Array(0);

  /**
   * Return all frames that are complete; empty when there is none.
   *
   * @param {Uint8Array} part
   */
  feed(part) {
    const bytes = new Uint8Array(this.#rest.length + part.length);
    bytes.set(this.#rest);
    bytes.set(part, this.#rest.length);
    let at = 0;
    for (let end = frameEnd(bytes, 0); end !== null && end <= bytes.length; ) {
      at = end;
      end = frameEnd(bytes, at);
    }
    this.#rest = bytes.slice(at);
    return bytes.subarray(0, at);
  }
}

/**
 * Return where the frame at `at` ends, also beyond what is there; null when its length is cut off.
 *
 * @param {Uint8Array} bytes
 * @param {number} at
 */
function frameEnd(bytes, at) {
  let length = 0;
  for (let index = 0; index < LENGTH_BYTES_MAX; index++) {
    if (at + 1 + index >= bytes.length) return null;
    const byte = bytes[at + 1 + index];
    length |= (byte & 0x7f) << (7 * index);
    if (byte < 0x80) {
      if (length > PAYLOAD_BYTES_MAX) {
        throw new ProtocolError(`A frame says it has ${length} bytes.`, 1009);
      }
      return at + 2 + index + length;
    }
  }
  throw new ProtocolError(`The length of a frame has more than ${LENGTH_BYTES_MAX} bytes.`);
}

/**
 * @param {Uint8Array} bytes
 * @param {number} at
 */
function bodyStart(bytes, at) {
  let start = at + 1;
  while (bytes[start] >= 0x80) start++;
  return start + 1;
}

/** Takes one part of a payload after the other; each length is checked against what is there. */
class Reader {
  #bytes;
  #at;
  #end;

  /**
   * @param {Uint8Array} bytes
   * @param {number} at
   * @param {number} end
   */
  constructor(bytes, at, end) {
    this.#bytes = bytes;
    this.#at = at;
    this.#end = end;
  }

  /** Return a varint of at most 64 bits; beyond 2^53 its last bits are lost. */
  number() {
    let value = 0;
    let scale = 1;
    for (let index = 0; index < 10; index++) {
      if (this.#at >= this.#end) throw new ProtocolError("A number in a frame is cut off.");
      const byte = this.#bytes[this.#at++];
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) {
        if (index === 9 && byte > 1) break;
        return value;
      }
      scale *= 128;
    }
    throw new ProtocolError("A number in a frame is beyond 64 bits.");
  }

  text() {
    const length = this.number();
    if (length > this.#end - this.#at) throw new ProtocolError("A string in a frame is cut off.");
    this.#at += length;
    return utf8(this.#bytes.subarray(this.#at - length, this.#at));
  }

  fields() {
    const count = this.number();
    if (count > FIELDS_MAX) {
      throw new ProtocolError(`A message has ${count} fields; at most ${FIELDS_MAX} are allowed.`);
    }
    /** @type {[string, string][]} */
    const fields = [];
    for (let i = 0; i < count; i++) fields.push([this.text(), this.text()]);
    return Object.fromEntries(fields);
  }

  textToEnd() {
    return utf8(this.#bytes.subarray(this.#at, this.#end));
  }

  bytesToEnd() {
    return this.#bytes.slice(this.#at, this.#end);
  }
}
