/** Values of the client as they stand in JSON, for comparing. */

import { decode } from "../../src/mdserver/web/client/codec/msgpack.js";

/** A value with bytes in base64 and what is undefined left out. */
export function plain(value) {
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  const kept = Object.entries(value).filter(([, item]) => item !== undefined);
  return Object.fromEntries(kept.map(([key, item]) => [key, plain(item)]));
}

/** The command in a frame of either encoding. */
export function commandOf(frame) {
  if (typeof frame === "string") return JSON.parse(frame);
  let at = 1;
  while (frame[at] >= 0x80) at++;
  return plain(decode(frame.subarray(at + 1)));
}

/** A message with the keys of the protocol: content that is bytes has a name of its own. */
export function messageOf(message) {
  const { content, ...rest } = plain(message);
  return { ...rest, [message.content instanceof Uint8Array ? "content_base64" : "content"]: content };
}
