/** The JSON form of the protocol: one object, or an array of objects, a text message. */

import { PAYLOAD_BYTES_MAX } from "../core/limits.js";
import { ProtocolError } from "../errors.js";
import { checkedEvent } from "./events.js";

/** A client's side. JSON has no state of a connection: subjects are always spelled. */
export class JsonCodec {
  subprotocol = "mdserver.v1.json";
  mediaTypes = { commands: "application/json", events: "application/x-ndjson" };

  /** Return what puts a stream's payloads together. */
  joiner() {
    return new LineJoiner();
  }

  /**
   * Return one command as one JSON object.
   *
   * @param {Record<string, any>} command
   */
  command(command) {
    const { content, ...rest } = command;
    if (content instanceof Uint8Array) return JSON.stringify({ ...rest, content_base64: base64(content) });
    return JSON.stringify(command);
  }

  /**
   * Return one object as it is, several as an array.
   *
   * @param {string[]} frames
   */
  join(frames) {
    return frames.length === 1 ? frames[0] : `[${frames.join(",")}]`;
  }

  /**
   * Decode one message; events of an unknown `op` are left out, for later versions' sake.
   *
   * @param {string} payload
   * @throws {ProtocolError}
   */
  events(payload) {
    let decoded;
    try {
      decoded = JSON.parse(payload);
    } catch (error) {
      throw new ProtocolError(`That is not well-formed JSON: ${/** @type {Error} */ (error).message}`);
    }
    const events = [];
    for (const one of Array.isArray(decoded) ? decoded : [decoded]) {
      const event = checkedEvent(one);
      if (event === null) continue;
      if (event.op === "message") takeContent(event);
      events.push(event);
    }
    return events;
  }
}

/** Puts the JSON lines of a stream together that come in any pieces; gives whole lines as an array. */
class LineJoiner {
  #rest = "";
  #decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

  /**
   * Return all lines that are complete; empty when there is none.
   *
   * @param {Uint8Array} part
   */
  feed(part) {
    const lines = (this.#rest + this.#decoder.decode(part, { stream: true })).split("\n");
    this.#rest = /** @type {string} */ (lines.pop());
    if (this.#rest.length > PAYLOAD_BYTES_MAX) throw new ProtocolError("A line is too long.", 1009);
    const whole = lines.filter((line) => line.trim());
    return whole.length ? `[${whole.join(",")}]` : "";
  }
}

/** @param {any} event */
function takeContent(event) {
  if (event.content !== undefined) return;
  if (typeof event.content_base64 !== "string") {
    throw new ProtocolError(`A message of ${event.subject} came without content.`);
  }
  try {
    event.content = Uint8Array.from(atob(event.content_base64), (char) => char.charCodeAt(0));
  } catch {
    throw new ProtocolError(`A message of ${event.subject} has content that is not base64.`);
  }
  delete event.content_base64;
}

/** @param {Uint8Array} bytes */
function base64(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) {
    text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  }
  return btoa(text);
}
