/**
 * What a server says: the shape of each event, checked when it comes in.
 *
 * A server is trusted no more than needed: an event of the wrong shape ends the connection with a
 * protocol error instead of an exception somewhere in an application.
 */

import { ProtocolError } from "../errors.js";

/**
 * @typedef {object} ConnectedEvent
 * @property {"connected"} op
 * @property {string} session
 * @property {string} member
 * @property {number} version
 * @property {string} history
 * @property {number} groups
 * @property {number} keepalive_ms
 * @property {number} message_bytes_max
 * @property {string} [publisher]
 * @property {string} [publisher_key]
 * @property {string} [path]
 */

/**
 * A message. `content` is text, or bytes when it was published as bytes.
 *
 * @typedef {object} MessageEvent
 * @property {"message"} op
 * @property {string} subject
 * @property {string | Uint8Array} content
 * @property {"UPDATE" | "SNAPSHOT" | "RECOVERED" | "HISTORICAL"} type
 * @property {number} epoch
 * @property {number} seq
 * @property {Record<string, string>} [fields]
 * @property {"GUARANTEED" | "STANDARD"} [qos]
 * @property {boolean} [retained]
 * @property {string} [closure]
 * @property {string} [reply_subject]
 * @property {boolean} [compressed]
 * @property {string} [match]
 * @property {[number, number]} [prev]
 */

/**
 * @typedef {object} StatusEvent
 * @property {"status"} op
 * @property {string} status
 * @property {string} [info]
 * @property {string} [subject]
 * @property {string} [reason]
 * @property {string} [closure]
 * @property {string | number} [id]
 * @property {number} [epoch]
 * @property {number} [seq]
 * @property {any} [missing]
 * @property {boolean} [certain]
 * @property {boolean} [duplicate]
 * @property {number} [expected]
 */

/**
 * @typedef {ConnectedEvent | MessageEvent | StatusEvent
 *   | {op: "reset", history: string, subjects: string[]}
 *   | {op: "move", delay_ms: number, reason: string, servers?: string[]}
 *   | {op: "error", code: string, reason: string, id?: string | number}
 *   | {op: "pong", t?: unknown, positions?: Record<string,
 *       import("../core/positions.js").Position>}
 *   | {op: "closed", code: number, reason: string}} WireEvent
 */

/**
 * A client's side of one encoding, with the state of one connection.
 *
 * `joiner` makes what puts the payloads of a stream together.
 *
 * @typedef {object} Codec
 * @property {string} subprotocol
 * @property {{commands: string, events: string}} mediaTypes
 * @property {() => {feed: (part: Uint8Array) => string | Uint8Array}} joiner
 * @property {(command: Record<string, any>) => string | Uint8Array} command
 * @property {(frames: any[]) => string | Uint8Array} join
 * @property {(payload: any) => WireEvent[]} events throws ProtocolError
 */

/**
 * The keys of each event and what they hold; those with a question mark may be absent.
 *
 * @type {Record<string, string>}
 */
const SHAPES = {
  connected:
    "session:text member:text version:int history:text groups:int keepalive_ms:int " +
    "message_bytes_max:int publisher?:text publisher_key?:text path?:text",
  message:
    "subject:text type:type epoch:int seq:int content?:text fields?:texts qos?:qos " +
    "retained?:flag closure?:text reply_subject?:text compressed?:flag match?:text",
  status:
    "status:text info?:text subject?:text reason?:text closure?:text id?:id epoch?:int seq?:int " +
    "missing?:object certain?:flag duplicate?:flag expected?:int",
  reset: "history:text subjects:list",
  move: "delay_ms:int reason:text servers?:list",
  error: "code:text reason:text id?:id",
  pong: "positions?:positions",
  closed: "code:int reason:text",
};

const isText = (/** @type {any} */ value) => typeof value === "string";
const isObject = (/** @type {any} */ value) => typeof value === "object" && value !== null;
const isPosition = (/** @type {any} */ value) =>
  isObject(value) &&
  isText(value.history) &&
  Number.isInteger(value.epoch) &&
  Number.isInteger(value.seq);

/** @type {Record<string, (value: any) => boolean>} */
const KINDS = {
  text: isText,
  int: Number.isInteger,
  flag: (value) => typeof value === "boolean",
  id: (value) => isText(value) || Number.isInteger(value),
  list: (value) => Array.isArray(value) && value.every(isText),
  object: isObject,
  texts: (value) => isObject(value) && Object.values(value).every(isText),
  positions: (value) => isObject(value) && Object.values(value).every(isPosition),
  type: (value) => /^(UPDATE|SNAPSHOT|RECOVERED|HISTORICAL)$/.test(value),
  qos: (value) => /^(GUARANTEED|STANDARD)$/.test(value),
};

/** Name, whether it may be absent, and check of each key of an event. */
const KEYS = new Map(
  Object.entries(SHAPES).map(([op, shape]) => [
    op,
    [...shape.matchAll(/(\w+)(\??):(\w+)/g)].map(([, key, optional, kind]) => ({
      key,
      optional,
      fits: KINDS[kind],
    })),
  ]),
);

/**
 * Return an event if it is one; null when its `op` is one of a later version.
 *
 * A key with the value null counts as absent.
 *
 * @param {any} event
 * @returns {WireEvent | null}
 * @throws {ProtocolError}
 */
export function checkedEvent(event) {
  if (!isObject(event) || !isText(event.op)) {
    throw new ProtocolError("An event is an object with the key `op`.");
  }
  const keys = KEYS.get(event.op);
  if (keys === undefined) return null;
  for (const { key, optional, fits } of keys) {
    if (optional && event[key] === null) delete event[key];
    if (!(optional && event[key] === undefined) && !fits(event[key])) {
      throw new ProtocolError(`\`${event.op}\` has a bad \`${key}\`.`);
    }
  }
  return event;
}
