/** The hub at the ends of ports: what runs in the worker, for each tab that connects. */

import { BinaryCodec } from "../codec/binary.js";
import { JsonCodec } from "../codec/json.js";
import { ClientCore } from "../core/machine.js";
import { Driver, now } from "../driver.js";
import { Hub } from "./hub.js";
import { whenFree } from "./locks.js";

/** @typedef {{lock: string | null, servers: string[], transport: any, isBinary: boolean, settings: any}} Beginning */

/** A tab without a lock that was silent for so long is gone; hidden ones may speak once a minute. */
const SILENT_MS = 180_000;
const LOOK_MS = 30_000;

/** The tabs of one connection. */
export class Ports {
  /** @type {Hub | null} */
  #hub = null;
  #lock;
  /** When those without a lock were heard last. @type {Map<import("./hub.js").Tab, number>} */
  #heard = new Map();
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #looking;

  /** @param {string | null} lock that the worker holds while it lives */
  constructor(lock) {
    this.#lock = lock;
  }

  /**
   * Serve a tab.
   *
   * @param {MessagePort} port
   */
  connect(port) {
    /** @type {import("./hub.js").Tab | undefined} */
    let tab;
    port.onmessage = ({ data }) => {
      if (data.begin) {
        tab = this.#attach(port, data.begin);
      } else if (!tab || !this.#hub?.tabs.has(tab)) {
        port.postMessage({ gone: true });
      } else if (data.op === "bye") {
        this.#forget(tab);
        port.close();
      } else {
        if (this.#heard.has(tab)) this.#heard.set(tab, now());
        this.#hub.said(tab, data);
      }
    };
    port.postMessage({ lock: this.#lock });
  }

  /**
   * @param {MessagePort} port
   * @param {Beginning} beginning
   */
  #attach(port, beginning) {
    const hub = (this.#hub ??= this.#begin(beginning));
    /** @type {any[]} */
    let outputs = [];
    const tab = hub.attach((output) => {
      if (outputs.push(output) > 1) return;
      queueMicrotask(() => {
        port.postMessage({ ...hub.standing, outputs });
        outputs = [];
      });
    });
    if (beginning.lock) {
      whenFree(beginning.lock, () => this.#forget(tab));
    } else {
      this.#heard.set(tab, now());
      this.#looking ??= setInterval(() => this.#dropSilent(), LOOK_MS);
    }
    return tab;
  }

  /** @param {import("./hub.js").Tab} tab */
  #forget(tab) {
    this.#hub?.detach(tab);
    this.#heard.delete(tab);
    if (this.#heard.size) return;
    clearInterval(this.#looking);
    this.#looking = undefined;
  }

  /** @param {Beginning} beginning */
  #begin({ servers, transport, isBinary, settings }) {
    const Codec = isBinary ? BinaryCodec : JsonCodec;
    const newCodec = () => new Codec();
    const core = new ClientCore(servers, settings, newCodec, Math.random);
    const driver = new Driver(core, newCodec, transport, globalThis.WebSocket, (output) => hub.take(output));
    const later = (/** @type {number} */ delayMs, /** @type {() => void} */ call) => {
      setTimeout(call, delayMs);
    };
    const hub = new Hub(core, (outputs) => driver.perform(outputs), now, later);
    return hub;
  }

  #dropSilent() {
    for (const [tab, heard] of [...this.#heard]) {
      if (now() - heard >= SILENT_MS) this.#forget(tab);
    }
  }
}
