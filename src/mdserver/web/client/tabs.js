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
    const say = (/** @type {any} */ said) => this.#worker.port.postMessage(said);
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
    whenFree(worker.lock, () => this.#again(worker));
    worker.port.postMessage({ begin: this.#beginning });
  }

  /**
   * Find another worker: this one has ended, or knows this tab no more.
   *
   * @param {Worker} gone
   */
  async #again(gone) {
    if (this.#isEnded || this.#worker !== gone) return;
    gone.port.close();
    try {
      this.#worker = await this.#open();
    } catch {
      setTimeout(() => this.#again(gone), WORKER_TIMEOUT_MS);
      return;
    }
    this.#listen();
    this.#link?.begin();
  }

  /** Leave the worker. */
  end() {
    if (this.#isEnded) return;
    this.#isEnded = true;
    clearInterval(this.#beating);
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
  const same = Object.entries(options).filter(([name]) => !OF_TAB.includes(name));
  const name = JSON.stringify([servers, isBinary(options), Object.fromEntries(same)]);
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
  } finally {
    clearTimeout(timer);
  }
}

/** @param {ClientOptions} options */
function isBinary({ codec: Codec }) {
  return Codec !== undefined && !new Codec().subprotocol.endsWith(".json");
}
