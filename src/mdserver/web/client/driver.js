/** Runs a `ClientCore`: its transports, its timers, and its outputs in order. */

import { CLOSE_WITHOUT_HANDSHAKE, JOIN_CHARS_MAX } from "./core/limits.js";
import { authority } from "./core/servers.js";
import { openHttpStream, openWebSocket } from "./transports.js";

/**
 * @typedef {import("./core/machine.js").Output} Output
 * @typedef {"auto" | "websocket" | "http"} TransportName
 */

const TIMER_MS_MAX = 2 ** 31 - 1;

/** Return the time in milliseconds; it never goes back. */
export function now() {
  return performance.now();
}

/** Carries outputs out and brings inputs in. */
export class Driver {
  #core;
  #newCodec;
  #codec;
  #take;
  #Socket;
  /** @type {TransportName} */
  transport;
  /** The transport that the last connection came about by. @type {"websocket" | "http" | null} */
  #proven = null;
  /** Whether the last attempt by WebSocket was given up before it opened. */
  #blocked = false;
  /** @type {Link | null} */
  #link = null;
  /** @type {Map<string, ReturnType<typeof setTimeout>>} */
  #timers = new Map();
  /** @type {Output[]} */
  #waiting = [];
  #performing = false;

  /**
   * @param {import("./core/machine.js").ClientCore} core
   * @param {() => import("./codec/events.js").Codec} newCodec
   * @param {TransportName} transport
   * @param {typeof WebSocket | undefined} Socket
   * @param {(output: Output) => void} take gets what is for the application
   */
  constructor(core, newCodec, transport, Socket, take) {
    this.#core = core;
    this.#newCodec = newCodec;
    this.#codec = newCodec(); // joins frames; no state of a connection is touched by that
    this.transport = transport;
    this.#Socket = Socket;
    this.#take = take;
  }

  /**
   * Carry outputs out, in order; never waits.
   *
   * The application may call the client again while it takes an output: what comes of that waits
   * until all before it is carried out.
   *
   * @param {Output[]} outputs
   */
  perform(outputs) {
    this.#waiting.push(...outputs);
    if (this.#performing) return;
    this.#performing = true;
    try {
      for (let output = this.#waiting.shift(); output; output = this.#waiting.shift()) {
        this.#carryOut(output);
      }
    } finally {
      this.#performing = false;
    }
  }

  /** @param {Output} output */
  #carryOut(output) {
    switch (output.kind) {
      case "transmit":
        this.#link?.transmit(output.frame);
        break;
      case "open":
        this.#open(output);
        break;
      case "close":
        this.#blocked = this.#link?.isWebSocketOpening ?? false;
        this.#link?.close(output.code, output.reason);
        this.#link = null;
        break;
      case "timer":
        this.#setTimer(output.timer, output.at);
        break;
      case "cancel":
        clearTimeout(this.#timers.get(output.timer));
        this.#timers.delete(output.timer);
        break;
      default:
        this.#take(output);
    }
  }

  /**
   * @param {string} timer
   * @param {number} at
   */
  #setTimer(timer, at) {
    clearTimeout(this.#timers.get(timer));
    const delayMs = Math.min(Math.max(0, at - now()), TIMER_MS_MAX);
    const due = () => {
      // Some runtimes call a little early, and none can wait for longer than TIMER_MS_MAX.
      if (now() < at - 1) {
        this.#setTimer(timer, at);
        return;
      }
      this.#timers.delete(timer);
      this.perform(this.#core.due(timer, Math.max(at, now())));
    };
    this.#timers.set(timer, setTimeout(due, delayMs));
  }

  /** @param {Extract<Output, {kind: "open"}>} opening */
  #open(opening) {
    const link = new Link(this.#codec);
    this.#link = link;
    this.#connect(link, opening, this.#first());
  }

  /** Return by which transport to try first. */
  #first() {
    if (this.transport !== "auto") return this.transport;
    if (this.#Socket === undefined || this.#proven === "http") return "http";
    return this.#blocked && this.#proven === null ? "http" : "websocket";
  }

  /**
   * Open a transport for a link; whatever happens becomes `opened`, `received` and `closed`.
   *
   * When no WebSocket can be opened, and none ever was, the same attempt is made over HTTP.
   *
   * @param {Link} link
   * @param {Extract<Output, {kind: "open"}>} opening
   * @param {"websocket" | "http"} by
   */
  #connect(link, { attempt, server, secure }, by) {
    const isCurrent = () => this.#link === link;
    let isOpen = false;
    const handlers = {
      opened: () => {
        if (!isCurrent()) return;
        isOpen = true;
        link.isWebSocketOpening = false;
        if (by === "websocket") this.#proven = by;
        this.perform(this.#core.opened(attempt, now()));
      },
      received: (/** @type {any} */ payload) => {
        if (!isCurrent()) return;
        this.#proven = by;
        this.perform(this.#core.received(attempt, payload, now()));
      },
      closed: (/** @type {number} */ code, /** @type {string} */ reason) => {
        if (!isCurrent()) return;
        const isBlocked = by === "websocket" && !isOpen;
        if (isBlocked && this.transport === "auto" && this.#proven === null) {
          this.#connect(link, { kind: "open", attempt, server, secure }, "http");
          return;
        }
        this.#link = null;
        link.end();
        this.perform(this.#core.closed(attempt, code, reason, now()));
      },
    };
    link.isWebSocketOpening = by === "websocket";
    const at = authority(server);
    try {
      if (by === "http") {
        link.transport = openHttpStream(at, secure, this.#newCodec, handlers);
      } else if (this.#Socket !== undefined) {
        link.transport = openWebSocket(at, secure, this.#newCodec, handlers, this.#Socket);
      } else {
        throw new Error("this runtime has no WebSocket: give its class, or use HTTP");
      }
    } catch (error) {
      // A page over TLS may not speak without it; the constructor says so by an exception.
      const reason = /** @type {Error} */ (error).message;
      queueMicrotask(() => handlers.closed(CLOSE_WITHOUT_HANDSHAKE, reason));
    }
  }
}

/** One attempt: frames on their way out, and the transport once there is one. */
class Link {
  /** @type {import("./transports.js").Transport | null} */
  transport = null;
  isWebSocketOpening = false;
  #codec;
  /** @type {any[]} */
  #frames = [];

  /** @param {import("./codec/events.js").Codec} codec */
  constructor(codec) {
    this.#codec = codec;
  }

  /**
   * Queue a frame; all of one turn travel together.
   *
   * @param {string | Uint8Array} frame
   */
  transmit(frame) {
    if (this.#frames.push(frame) === 1) queueMicrotask(() => this.#flush());
  }

  /**
   * Send what is queued, then close.
   *
   * @param {number} code
   * @param {string} reason
   */
  close(code, reason) {
    this.#flush();
    this.transport?.close(code, reason);
    this.end();
  }

  /** Forget what is queued: the transport is gone. */
  end() {
    this.#frames = [];
    this.transport = null;
  }

  #flush() {
    while (this.#frames.length && this.transport !== null) {
      let [count, chars] = [0, 0];
      for (const frame of this.#frames) {
        chars += frame.length + 1;
        if (count && chars > JOIN_CHARS_MAX) break;
        count += 1;
      }
      this.transport.send(this.#codec.join(this.#frames.splice(0, count)));
    }
  }
}
