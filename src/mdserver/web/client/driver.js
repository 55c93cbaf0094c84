/** Runs a `ClientCore`: its transports, its timers, and its outputs in order. */

import { CLOSE_WITHOUT_HANDSHAKE, JOIN_CHARS_MAX } from "./core/limits.js";
import { authority } from "./core/servers.js";
import { openWebSocket } from "./transports.js";

/**
 * @typedef {import("./core/machine.js").Output} Output
 * @typedef {"websocket" | "http" | "sse"} TransportName
 */

/** In this order they are tried, as long as none was of use. @type {TransportName[]} */
const TRANSPORTS = ["websocket", "http", "sse"];
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
  /** The transports that may be used. */
  #all;
  /** The same in the order in which they are tried; the one alone that a connection came about by. */
  #transports;
  #proven = false;
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
   * @param {TransportName | "auto"} transport
   * @param {typeof WebSocket | undefined} Socket
   * @param {(output: Output) => void} take gets what is for the application
   */
  constructor(core, newCodec, transport, Socket, take) {
    this.#core = core;
    this.#newCodec = newCodec;
    this.#codec = newCodec(); // joins frames; no state of a connection is touched by that
    this.#all = this.#transports = transport === "auto" ? TRANSPORTS.slice(Socket ? 0 : 1) : [transport];
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
        if (this.#link) this.#pass(this.#link.by);
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
    this.#connect(link, opening);
  }

  /**
   * Leave a transport that came to nothing until all others have been tried.
   *
   * @param {TransportName} by
   */
  #pass(by) {
    if (!this.#proven && this.#transports[0] === by) {
      this.#transports = [...this.#transports.slice(1), by];
    }
  }

  /** @param {TransportName} by */
  #prove(by) {
    if (this.#transports.length > 1) this.#transports = [by];
    this.#proven = true;
  }

  /**
   * Open a transport for a link; whatever happens becomes `opened`, `received` and `closed`.
   *
   * What cannot be opened is followed by the next transport, in the same attempt.
   *
   * @param {Link} link
   * @param {Extract<Output, {kind: "open"}>} opening
   * @param {number} [tried] how many transports came to nothing in this attempt
   */
  #connect(link, opening, tried = 0) {
    const { attempt, server, secure } = opening;
    const [by] = this.#transports;
    let isOpen = false;
    const isCurrent = () => this.#link === link;
    const handlers = {
      opened: () => {
        if (!isCurrent()) return;
        isOpen = true;
        if (by === "websocket") this.#prove(by);
        this.perform(this.#core.opened(attempt, now()));
      },
      heard: () => {
        if (isCurrent()) this.#core.heard(attempt, now());
      },
      received: (/** @type {any} */ payload) => {
        if (!isCurrent()) return;
        this.#prove(by);
        this.perform(this.#core.received(attempt, payload, now()));
      },
      closed: (/** @type {number} */ code, /** @type {string} */ reason, isReached = true) => {
        if (!isCurrent()) return;
        if (isReached) this.#pass(by);
        else if (!this.#proven) this.#transports = this.#all; // no transport is to blame
        if (!isOpen && !this.#proven && tried + 1 < this.#all.length) {
          this.#connect(link, opening, tried + 1);
          return;
        }
        this.#link = null;
        link.end();
        this.perform(this.#core.closed(attempt, code, reason, now()));
      },
    };
    link.by = by;
    const at = authority(server);
    const failed = (/** @type {any} */ { message }) => handlers.closed(CLOSE_WITHOUT_HANDSHAKE, message);
    if (by !== "websocket") {
      import("./streaming.js").then(({ openHttpStream }) => {
        if (!isCurrent()) return;
        link.transport = openHttpStream(at, secure, this.#newCodec, handlers, by === "sse");
      }).catch(failed);
      return;
    }
    try {
      if (!this.#Socket) throw new Error("this runtime has no WebSocket: give its class, or use HTTP");
      link.transport = openWebSocket(at, secure, this.#newCodec, handlers, this.#Socket);
    } catch (error) {
      // A page over TLS may not speak without it; the constructor says so by an exception.
      queueMicrotask(() => failed(error));
    }
  }
}

/** One attempt: frames on their way out, and the transport once there is one. */
class Link {
  /** @type {import("./transports.js").Transport | null} */
  transport = null;
  /** @type {TransportName} */
  by = "websocket";
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
