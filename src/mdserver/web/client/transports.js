/**
 * How bytes travel: over a WebSocket, or over HTTP when no WebSocket gets through.
 *
 * A transport is opened with a maker of codecs and three callbacks: `opened()`, `received(payload)`,
 * `closed(code, reason)`, the last of which comes once and ends it. `send` takes a payload, `close`
 * ends it from this side; `closed` is not called then.
 */

import { CLOSE_NORMAL, CLOSE_WITHOUT_HANDSHAKE } from "./core/limits.js";

/**
 * @typedef {import("./codec/events.js").Codec} Codec
 * @typedef {{opened: () => void, received: (payload: any) => void, closed: (code: number, reason: string) => void}} Handlers
 * @typedef {{send: (payload: any) => void, close: (code: number, reason: string) => void}} Transport
 */

const REASON_CHARS_MAX = 200;

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

/**
 * Open an HTTP stream to a server: one request whose answer never ends brings the events, further
 * ones carry commands, one after the other (docs/protocol.md, "HTTP streaming").
 *
 * @param {string} authority host and port
 * @param {boolean} secure
 * @param {() => Codec} newCodec
 * @param {Handlers} handlers
 * @returns {Transport}
 */
export function openHttpStream(authority, secure, newCodec, handlers) {
  const stream = new HttpStream(`${secure ? "https" : "http"}://${authority}`, newCodec, handlers);
  queueMicrotask(handlers.opened);
  return stream;
}

class HttpStream {
  #base;
  #newCodec;
  #codec;
  #handlers;
  #ended = new AbortController();
  /** Where commands go: nothing before `connected` says it. @type {string | null} */
  #path = null;
  #begun = false;
  /** @type {any[]} */
  #waiting = [];
  #sending = false;

  /**
   * @param {string} base
   * @param {() => Codec} newCodec
   * @param {Handlers} handlers
   */
  constructor(base, newCodec, handlers) {
    this.#base = base;
    this.#newCodec = newCodec;
    this.#codec = newCodec();
    this.#handlers = handlers;
  }

  /** @param {any} payload */
  send(payload) {
    if (this.#begun) {
      this.#waiting.push(payload);
      this.#sendWaiting();
    } else {
      this.#begun = true;
      this.#receive(payload);
    }
  }

  close() {
    this.#ended.abort();
  }

  /**
   * @param {string} path
   * @param {any} body
   */
  #post(path, body) {
    const { commands, events } = this.#codec.mediaTypes;
    return fetch(this.#base + path, {
      method: "POST",
      headers: { "content-type": commands, accept: events },
      body,
      cache: "no-store",
      signal: this.#ended.signal,
    });
  }

  /** @param {any} first */
  async #receive(first) {
    try {
      const answer = await this.#post("/stream", first);
      if (!answer.ok || !answer.body) {
        this.#lost(await failureOf(answer));
        return;
      }
      const reader = answer.body.getReader();
      const joiner = this.#codec.joiner();
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        const payload = joiner.feed(part.value);
        if (payload.length) this.#take(payload);
      }
      this.#lost("the stream ended without a reason");
    } catch (error) {
      this.#lost(`the stream was lost: ${/** @type {Error} */ (error).message}`);
    }
  }

  /** @param {string | Uint8Array} payload */
  #take(payload) {
    if (this.#path === null) this.#path = this.#pathIn(payload);
    this.#handlers.received(payload);
    this.#sendWaiting();
  }

  /**
   * Return the path for commands, which `connected` names, the first event of a stream.
   *
   * @param {string | Uint8Array} payload
   */
  #pathIn(payload) {
    try {
      const [first] = this.#newCodec().events(payload);
      return (first?.op === "connected" && first.path) || null;
    } catch {
      return null; // whoever takes the payload finds out what is wrong with it
    }
  }

  async #sendWaiting() {
    if (this.#sending || this.#path === null) return;
    this.#sending = true;
    try {
      while (this.#waiting.length) {
        const answer = await this.#post(this.#path, this.#waiting.shift());
        if (answer.status !== 202) this.#lost(await failureOf(answer));
      }
    } catch (error) {
      this.#lost(`commands could not be sent: ${/** @type {Error} */ (error).message}`);
    } finally {
      this.#sending = false;
    }
  }

  /** @param {string} reason */
  #lost(reason) {
    if (this.#ended.signal.aborted) return;
    this.#ended.abort();
    this.#handlers.closed(CLOSE_WITHOUT_HANDSHAKE, reason);
  }
}

/** @param {Response} answer */
async function failureOf(answer) {
  const said = (await answer.text()).slice(0, REASON_CHARS_MAX).trim();
  return `the server answered HTTP ${answer.status}${said ? `: ${said}` : ""}`;
}
