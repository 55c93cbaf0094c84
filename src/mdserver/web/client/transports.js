/**
 * How bytes travel: over a WebSocket, or by `streaming.js` over HTTP when none gets through.
 *
 * A transport is opened with a maker of codecs and callbacks: `opened()`, `heard()` for a part of a
 * payload (a WebSocket tells of none), `received(payload)`, and `closed(code, reason, isReached)`, which
 * comes once and ends it; `isReached` is false when nobody answered. `send` takes a payload, `close`
 * ends it from this side; `closed` is not called then.
 */

import { CLOSE_NORMAL, CLOSE_WITHOUT_HANDSHAKE } from "./core/limits.js";

/**
 * @typedef {import("./codec/events.js").Codec} Codec
 * @typedef {{opened: () => void, heard: () => void, received: (payload: any) => void, closed: (code: number, reason: string, isReached?: boolean) => void}} Handlers
 * @typedef {{send: (payload: any) => void, close: (code: number, reason: string) => void}} Transport
 */

/**
 * Open a WebSocket to a server.
 *
 * @param {string} authority host and port
 * @param {boolean} secure
 * @param {() => Codec} newCodec
 * @param {Handlers} handlers
 * @param {typeof WebSocket} Socket
 * @returns {Transport}
 */
export function openWebSocket(authority, secure, newCodec, handlers, Socket) {
  const socket = new Socket(`${secure ? "wss" : "ws"}://${authority}/ws`, [newCodec().subprotocol]);
  socket.binaryType = "arraybuffer";
  let [isOpen, isEnded] = [false, false];
  const end = (/** @type {number} */ code, /** @type {string} */ reason) => {
    if (!isEnded) handlers.closed(code, reason);
    isEnded = true;
  };
  socket.onopen = () => {
    isOpen = true;
    handlers.opened();
  };
  socket.onmessage = ({ data }) => {
    handlers.received(typeof data === "string" ? data : new Uint8Array(data));
  };
  // What failed is not told to scripts. `close` follows, but not in every runtime.
  socket.onerror = () => {
    if (!isOpen) end(CLOSE_WITHOUT_HANDSHAKE, "no WebSocket to the server could be opened");
  };
  socket.onclose = ({ code, reason }) => end(code, reason || "the connection was lost");
  return {
    send: (payload) => socket.send(payload),
    close(code, reason) {
      isEnded = true;
      socket.onopen = socket.onmessage = null;
      // Browsers let a script say 1000 and its own codes only.
      const isOwn = code >= 3000 && code <= 4999;
      socket.close(isOwn ? code : CLOSE_NORMAL, reason.slice(0, 40));
    },
  };
}
