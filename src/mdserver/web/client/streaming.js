/**
 * How bytes travel when no WebSocket gets through; loaded when that is so.
 *
 * A stream of plain lines or frames comes first. Server-sent events are the last resort: some proxies
 * pass these on at once, but keep other answers until they end.
 */

import { CLOSE_WITHOUT_HANDSHAKE } from "./core/limits.js";

/**
 * @typedef {import("./codec/events.js").Codec} Codec
 * @typedef {import("./transports.js").Handlers} Handlers
 * @typedef {import("./transports.js").Transport} Transport
 */

const REASON_CHARS_MAX = 200;
const EVENT_CHARS_MAX = 2 ** 26;

/**
 * Open an HTTP stream to a server: one request whose answer never ends brings the events, further
 * ones carry commands, one after the other (docs/protocol.md, "HTTP streaming").
 *
 * @param {string} authority host and port
 * @param {boolean} secure
 * @param {() => Codec} newCodec
 * @param {Handlers} handlers
 * @param {boolean} asEvents as server-sent events
 * @returns {Transport}
 */
export function openHttpStream(authority, secure, newCodec, handlers, asEvents) {
  const base = `${secure ? "https" : "http"}://${authority}`;
  const stream = new HttpStream(base, newCodec, handlers, asEvents);
  queueMicrotask(handlers.opened);
  return stream;
}

class HttpStream {
  #base;
  #newCodec;
  #codec;
  #handlers;
  #asEvents;
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
   * @param {boolean} asEvents
   */
  constructor(base, newCodec, handlers, asEvents) {
    this.#base = base;
    this.#newCodec = newCodec;
    this.#codec = newCodec();
    this.#handlers = handlers;
    this.#asEvents = asEvents;
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
      headers: {
        "content-type": commands,
        accept: this.#asEvents ? "text/event-stream" : events,
      },
      body,
      cache: "no-store",
      signal: this.#ended.signal,
    });
  }

  /** @param {any} first */
  async #receive(first) {
    let isReached = false;
    try {
      const answer = await this.#post("/stream", first);
      isReached = true;
      if (!answer.ok || !answer.body) {
        this.#lost(await failureOf(answer));
        return;
      }
      const reader = answer.body.getReader();
      const frames = this.#codec.joiner();
      const joiner = this.#asEvents ? new EventJoiner(frames, this.#codec.mediaTypes.events.includes("json")) : frames;
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        this.#handlers.heard();
        const payload = joiner.feed(part.value);
        if (payload.length) this.#take(payload);
      }
      this.#lost("the stream ended without a reason");
    } catch (error) {
      const { message, cause } = /** @type {Error & {cause?: Error}} */ (error);
      // Node says in the cause what happened; browsers tell scripts nothing.
      const why = cause?.message || message;
      this.#lost(`${isReached ? "the stream was lost" : "nobody answered"}: ${why}`, isReached);
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

  /**
   * @param {string} reason
   * @param {boolean} [isReached] whether anybody answered
   */
  #lost(reason, isReached = true) {
    if (this.#ended.signal.aborted) return;
    this.#ended.abort();
    this.#handlers.closed(CLOSE_WITHOUT_HANDSHAKE, reason, isReached);
  }
}

/** @param {Response} answer */
async function failureOf(answer) {
  const isPage = answer.headers.get("content-type")?.startsWith("text/html");
  if (isPage) return `HTTP ${answer.status} and a page came back: is it the address of an mdserver?`;
  const said = (await answer.text()).slice(0, REASON_CHARS_MAX).trim();
  return `the server answered HTTP ${answer.status}${said ? `: ${said}` : ""}`;
}

/** Takes the data out of server-sent events, which come in any pieces. */
class EventJoiner {
  #inner;
  #text;
  #rest = "";
  #decoder = new TextDecoder();
  #encoder = new TextEncoder();

  /**
   * @param {ReturnType<Codec["joiner"]>} inner gets JSON lines, or frames
   * @param {boolean} text
   */
  constructor(inner, text) {
    this.#inner = inner;
    this.#text = text;
  }

  /**
   * Return what is complete.
   *
   * @param {Uint8Array} part
   */
  feed(part) {
    const lines = (this.#rest + this.#decoder.decode(part, { stream: true })).split("\n");
    this.#rest = /** @type {string} */ (lines.pop());
    if (this.#rest.length > EVENT_CHARS_MAX) throw new Error("a server-sent event is too long");
    const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
    if (this.#text) return this.#inner.feed(this.#encoder.encode(data.map((one) => `${one}\n`).join("")));
    const bytes = data.map(atob).join("");
    return this.#inner.feed(Uint8Array.from(bytes, (char) => char.charCodeAt(0)));
  }
}
