/**
 * Tabs that share one connection: the client of a tab, whose connection is that of a SharedWorker.
 *
 * Loaded when `connect` is called with `shared`. The worker (`worker.js`) has the core and the
 * transports for all tabs that name the same servers and options.
 */

import { Client } from "./index.js";
import { ArgumentError } from "./errors.js";
import { Link } from "./tabs/link.js";
import { holdLock, whenFree } from "./tabs/locks.js";

/**
 * @typedef {import("./client.js").ClientOptions} ClientOptions
 * @typedef {{port: MessagePort, lock: string | null}} Worker
 */

/** How long the worker may take to load and to answer before a tab goes its own way. */
const WORKER_TIMEOUT_MS = 10_000;
/** After how long a tab that found no other worker looks again; `connect` does so at once. */
const RETRY_MS = 10_000;
/** A tab without a lock tells that it is there; hidden ones are let run once a minute only. */
const BEAT_MS = 20_000;
/** What may differ from tab to tab; all else is the same for those that share a connection. */
const OF_TAB = ["token", "bufferMessages", "connectTimeoutMs", "timeoutMs", "worker", "codec"];
const UNSHARED = ["publisher", "publisherKey", "numbering", "WebSocket", "random"];

/** A client whose connection is that of a worker. */
class SharedClient extends Client {
  shared = true;
  #attachment;

  /**
   * @param {string | string[] | undefined} servers
   * @param {ClientOptions} options
   * @param {Attachment} attachment
   */
  constructor(servers, options, attachment) {
    super(servers, options, (given, settings, take) =>
      attachment.begin(given, settings, options, take),
    );
    this.#attachment = attachment;
  }

  async close() {
    await super.close();
    this.#attachment.end();
  }
}

/** What joins a tab to the worker: its port, the locks that tell of an end, another worker then. */
class Attachment {
  #worker;
  #held;
  #open;
  #beginning = {};
  /** @type {Link | null} */
  #link = null;
  #isEnded = false;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #beating;
  #isOpening = false;
  /** Until another worker is tried again. @type {ReturnType<typeof setTimeout> | undefined} */
  #retrying;
  #unwatch = () => {};

  /**
   * @param {Worker} worker
   * @param {import("./tabs/locks.js").Held} held
   * @param {() => Promise<Worker>} open
   */
  constructor(worker, held, open) {
    this.#worker = worker;
    this.#held = held;
    this.#open = open;
  }

  /**
   * Return the tab's end of the connection.
   *
   * @param {string[]} servers
   * @param {any} settings of the core
   * @param {ClientOptions} options
   * @param {(output: any) => void} take
   */
  begin(servers, { token, ...settings }, options, take) {
    const { lock } = this.#held;
    const { transport = "auto", bufferMessages } = options;
    this.#beginning = { lock, servers, transport, isBinary: isBinary(options), settings };
    const say = (/** @type {any} */ said) => {
      this.#worker.port.postMessage(said);
      if (said.op === "connect" && this.#retrying) this.#again(this.#worker);
    };
    const tab = { hasTokens: typeof options.token === "function", bufferMessages };
    // What the worker gets has been checked here: it has nobody to tell of a mistake.
    this.#link = new Link(servers, { encryption: settings.encryption, token }, tab, say, take);
    this.#listen();
    this.#link.hello();
    if (!lock) this.#beating = setInterval(() => say({ op: "beat" }), BEAT_MS);
    return this.#link;
  }

  #listen() {
    const worker = this.#worker;
    worker.port.onmessage = ({ data }) => {
      if (data.gone) this.#again(worker);
      else this.#link?.told(data);
    };
    this.#unwatch = whenFree(worker.lock, () => this.#again(worker));
    worker.port.postMessage({ begin: this.#beginning });
  }

  /**
   * Find another worker: this one has ended, or knows this tab no more.
   *
   * @param {Worker} gone
   */
  async #again(gone) {
    if (this.#isEnded || this.#isOpening || this.#worker !== gone) return;
    this.#isOpening = true;
    this.#stopWaiting();
    gone.port.close();
    const link = /** @type {Link} */ (this.#link);
    link.cutOff();
    try {
      const worker = await this.#open();
      if (this.#isEnded) {
        worker.port.close(); // the client was closed meanwhile: this one is not to know of it
        return;
      }
      this.#worker = worker;
    } catch (error) {
      link.failure = /** @type {Error} */ (error).message;
      if (!this.#isEnded) this.#retrying = setTimeout(() => this.#again(gone), RETRY_MS);
      return;
    } finally {
      this.#isOpening = false;
    }
    this.#listen();
    link.begin();
  }

  #stopWaiting() {
    this.#unwatch();
    clearTimeout(this.#retrying);
    this.#retrying = undefined;
  }

  /** Leave the worker. */
  end() {
    if (this.#isEnded) return;
    this.#isEnded = true;
    clearInterval(this.#beating);
    this.#stopWaiting();
    this.#worker.port.postMessage({ op: "bye" });
    this.#worker.port.close();
    this.#held.free();
  }
}

/**
 * Return a client that shares its connection, or one with its own when that is not possible.
 *
 * @param {string | string[] | undefined} servers
 * @param {ClientOptions} options
 * @returns {Promise<Client>}
 * @throws {ArgumentError}
 */
export async function sharedClient(servers, options) {
  for (const name of UNSHARED) {
    if (/** @type {any} */ (options)[name] !== undefined) {
      throw new ArgumentError(`${name} cannot be given with shared: it would be that of all tabs`);
    }
  }
  const open = () => openWorker(servers, options);
  let worker;
  try {
    worker = await open();
  } catch (error) {
    return ownClient(servers, options, /** @type {Error} */ (error).message);
  }
  const attachment = new Attachment(worker, await holdLock("tab"), open);
  try {
    return new SharedClient(servers, options, attachment);
  } catch (error) {
    attachment.end();
    throw error;
  }
}

/**
 * Return a client with a connection of its own, which says why in a status.
 *
 * @param {string | string[] | undefined} servers
 * @param {ClientOptions} options
 * @param {string} reason
 */
function ownClient(servers, options, reason) {
  const client = new Client(servers, { ...options, shared: undefined });
  const detail = { status: "NOT_SHARED", info: `this tab has a connection of its own: ${reason}` };
  const tell = () => client.dispatchEvent(new CustomEvent("status", { detail }));
  // Who waits for `connect` listens only then.
  client.connected().then(() => setTimeout(tell)).catch(() => {});
  return client;
}

/**
 * Start the worker, or find the one that runs, and wait for its first word.
 *
 * @param {string | string[] | undefined} servers
 * @param {ClientOptions} options
 * @returns {Promise<Worker>}
 */
async function openWorker(servers, options) {
  if (!globalThis.SharedWorker) throw new Error("there is no SharedWorker here");
  const name = nameFor(servers, options);
  const url = String(options.worker ?? new URL("./worker.js", import.meta.url));
  const worker = new SharedWorker(url, { type: "module", name });
  const { port } = worker;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  try {
    const { lock } = await new Promise((resolve, reject) => {
      const fail = (/** @type {string} */ why) => reject(new Error(`${url} ${why}`));
      timer = setTimeout(() => fail("did not answer"), WORKER_TIMEOUT_MS);
      worker.onerror = () => fail("could not be loaded");
      port.onmessage = ({ data }) => resolve(data);
    });
    return { port, lock };
  } catch (error) {
    port.close();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Return the name of the worker for those who give the same, in whatever order.
 *
 * It is a hash (64 bits of FNV-1a): names of workers are shown by browsers, options may be nobody's
 * business, and pages without TLS have no hashes of the browser.
 *
 * @param {string | string[] | undefined} servers
 * @param {ClientOptions} options
 */
function nameFor(servers, options) {
  const same = Object.entries(options).filter(([name]) => !OF_TAB.includes(name));
  const sorted = (/** @type {string} */ _, /** @type {any} */ value) =>
    value instanceof Object && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([one], [two]) => (one < two ? -1 : 1)))
      : value;
  const text = JSON.stringify([servers, isBinary(options), Object.fromEntries(same)], sorted);
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(text)) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  }
  return `mdserver ${hash.toString(16)}`;
}

/** @param {ClientOptions} options */
function isBinary({ codec: Codec }) {
  return Codec !== undefined && !new Codec().subprotocol.endsWith(".json");
}
