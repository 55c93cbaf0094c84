/** `Client`: the API of the JavaScript client (docs/javascript.md). */

import {
  checkOptions,
  isCount,
  isFlag,
  isFunction,
  isText,
  publication,
  shown,
  texts,
} from "./arguments.js";
import { JsonCodec } from "./codec/json.js";
import * as limits from "./core/limits.js";
import { ClientCore } from "./core/machine.js";
import { RECONNECT_BROWSER, RECONNECT_SERVICE } from "./core/schedule.js";
import { Driver, now } from "./driver.js";
import {
  ArgumentError,
  ConnectError,
  NotOpenError,
  PublishError,
  StoppedError,
  TimeoutError,
} from "./errors.js";
import { SharedSubscriptions } from "./sharing.js";
import { Subscription } from "./subscription.js";

/**
 * @typedef {import("./message.js").Message} Message
 * @typedef {import("./arguments.js").PublishOptions} PublishOptions
 * @typedef {import("./core/publications.js").PublishResult} PublishResult
 * @typedef {import("./core/publications.js").Numbering} Numbering
 * @typedef {import("./core/machine.js").Output} Output
 * @typedef {import("./core/machine.js").Notice} Notice
 * @typedef {import("./core/schedule.js").ReconnectSettings} ReconnectSettings
 */

/**
 * How a client is set up.
 *
 * @typedef {object} ClientOptions
 * @property {string | (() => string | Promise<string>)} [token] the entitlement token, or a function
 *   that gets one; it is called again when the token is about to expire
 * @property {new () => import("./codec/events.js").Codec} [codec] the encoding, by default JSON;
 *   `BinaryCodec` of `mdserver-client/binary` for very many messages
 * @property {"auto" | "websocket" | "http" | "sse"} [transport] by default auto: WebSocket, HTTP when
 *   no WebSocket gets through, and server-sent events when no stream does
 * @property {boolean} [encryption] TLS for servers without a scheme; by default as the page came
 * @property {string | null} [publisher] a name, by default made up; null: publications that are
 *   repeated after a lost connection without the server telling repeats apart
 * @property {string} [publisherKey] makes `publisher` the identity that it belongs to
 * @property {Numbering} [numbering] of an earlier run, which this one goes on with
 * @property {string} [externalToken] how the presence log is to name this client
 * @property {number} [keepaliveMs]
 * @property {"browser" | "service" | Partial<ReconnectSettings>} [reconnect]
 * @property {number} [bufferMessages] messages that wait in a subscription
 * @property {number} [connectTimeoutMs] when no server was reached at all in this time, whoever waits
 *   gets an error; the client goes on trying. 0: wait for ever
 * @property {number} [timeoutMs] how long `publish` waits for its result; 0: for ever
 * @property {typeof WebSocket} [WebSocket] for runtimes without one of their own
 * @property {() => number} [random]
 * @property {boolean | string} [shared] for `connect`: the tabs of a browser that give the same name
 *   here (or true) and the same servers and options share one connection
 * @property {string} [worker] the address of `worker.js` for `shared`, by default beside this file
 */

/** @type {Record<string, [(value: any) => boolean, string]>} */
const CLIENT_OPTIONS = {
  token: [(value) => isText(value) || isFunction(value), "a string, or a function that gives one"],
  codec: [isFunction, "a class such as BinaryCodec"],
  transport: [
    (value) => ["auto", "websocket", "http", "sse"].includes(value),
    "'auto', 'websocket', 'http' or 'sse'",
  ],
  encryption: [isFlag, "true or false"],
  publisher: [(value) => isText(value) || value === null, "a name, or null"],
  publisherKey: [isText, "a string"],
  numbering: [(value) => typeof value === "object", "what `client.numbering` gave"],
  externalToken: [isText, "a string"],
  keepaliveMs: [isCount, "a number of milliseconds"],
  reconnect: [
    (value) => value === "browser" || value === "service" || typeof value === "object",
    "'browser', 'service' or an object of settings",
  ],
  bufferMessages: [(value) => isCount(value) && value >= 1, "a number from 1 on"],
  connectTimeoutMs: [isCount, "a number of milliseconds"],
  timeoutMs: [isCount, "a number of milliseconds"],
  WebSocket: [isFunction, "a class"],
  random: [isFunction, "a function"],
  shared: [(value) => isFlag(value) || isText(value), "true, false or a name"],
  worker: [isText, "an address"],
};

/** @type {Record<string, [(value: any) => boolean, string]>} */
const SUBSCRIBE_OPTIONS = {
  history: [Number.isInteger, "a whole number of messages"],
  conflationMs: [Number.isInteger, "a whole number of milliseconds"],
};

const PRESETS = { browser: RECONNECT_BROWSER, service: RECONNECT_SERVICE };
const CONNECT_TIMEOUT_MS = 30_000;
const CLOSE_CONNECT_DENIED = 4101;
const TOKEN_RETRY_MS = 5000;

/**
 * A publisher and subscriber. It connects at once, and again whenever the connection ends.
 *
 * `servers`: `[weight] [scheme://]host[:port]`, chosen by weight at each connection; in a browser the
 * server of the page by default. Each status is an event: `client.addEventListener("status", (event)
 * => event.detail)`.
 */
export class Client extends EventTarget {
  /** Whether this client has a connection in common with other tabs. */
  shared = false;
  #core;
  #driver;
  #token;
  #name;
  #bufferMessages;
  #timeoutMs;
  #shared;
  /** @type {Map<number, {resolve: (result: PublishResult) => void, reject: (error: Error) => void}>} */
  #publications = new Map();
  /** @type {{isThere: () => boolean, resolve: (value?: any) => void, reject: (error: Error) => void}[]} */
  #waiters = [];
  /** @type {StoppedError | null} */
  #stopped = null;
  /** @type {ConnectError | null} */
  #unreachable = null;
  #closed = false;
  #requests = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #expecting;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #renewing;
  #isRenewing = false;
  /** Whether no connection has stood with the token yet. */
  #tokenUntried = false;
  #unwatch = () => {};

  /**
   * @param {string | string[]} [servers]
   * @param {ClientOptions} [options]
   * @param {(servers: string[], settings: any, take: (output: any) => void) => any} [link] for
   *   `connect`: makes what stands for core, driver and subscriptions when these are elsewhere
   * @throws {ArgumentError}
   */
  constructor(servers, options = {}, link = undefined) {
    super();
    checkOptions("a client", options, CLIENT_OPTIONS);
    if (options.shared && !link) {
      throw new ArgumentError("a shared connection comes from `connect`, not from `new Client`");
    }
    const random = options.random ?? Math.random;
    this.#token = options.token;
    this.#name = [random(), random()].map((drawn) => drawn.toString(36).slice(2)).join("");
    this.#bufferMessages = options.bufferMessages ?? limits.BUFFER_MESSAGES;
    this.#timeoutMs = options.timeoutMs ?? 0;
    const Codec = options.codec ?? JsonCodec;
    const newCodec = () => new Codec();
    const reconnect = options.reconnect ?? (globalThis.document ? "browser" : "service");
    const preset = typeof reconnect === "string" ? PRESETS[reconnect] : { ...RECONNECT_BROWSER, ...reconnect };
    const settings = {
      client: "mdserver-js/0.2.0",
      publisher: options.publisher === null ? undefined : (options.publisher ?? this.#name),
      publisherKey: options.publisherKey,
      numbering: options.numbering,
      token: typeof options.token === "string" ? options.token : undefined,
      externalToken: options.externalToken,
      keepaliveMs: options.keepaliveMs,
      encryption: options.encryption ?? globalThis.location?.protocol === "https:",
      reconnect: preset,
    };
    const Socket = options.WebSocket ?? globalThis.WebSocket;
    const transport = options.transport ?? "auto";
    const take = (/** @type {Output} */ output) => this.#take(output);
    const given = serversOf(servers);
    const linked = link?.(given, settings, take);
    /** @type {ClientCore} */
    this.#core = linked ?? new ClientCore(given, settings, newCodec, random);
    /** @type {Driver} */
    this.#driver = linked ?? new Driver(this.#core, newCodec, transport, Socket, take);
    /** @type {SharedSubscriptions} */
    this.#shared =
      linked ??
      new SharedSubscriptions(this.#core, (outputs) => this.#driver.perform(outputs));
    this.#expectConnection(options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS);
    this.#watchPage();
    if (isFunction(this.#token)) this.#renewToken();
    else this.connect();
  }

  // The connection

  /** Where the client stands: "up" when a connection does. */
  get phase() {
    return this.#core.phase;
  }

  /** Connect now, also while waiting to reconnect; a new client does so by itself. */
  connect() {
    this.#requireOpen();
    this.#stopped = null;
    this.#driver.perform(this.#core.connect(now()));
  }

  /** Close the connection; subscriptions are kept for `connect`, open publications fail. */
  disconnect() {
    this.#driver.perform(this.#core.disconnect());
  }

  /**
   * Wait until a connection stands.
   *
   * Rejects with StoppedError when no server wants this client, with ConnectError when none was
   * reached in `connectTimeoutMs`.
   */
  async connected() {
    await this.waitUntil(() => this.#core.phase === "up");
    return this;
  }

  /** Wait for the results of publications, at most 5 s, and end the client for good. */
  async close() {
    if (this.#closed) return;
    if (this.#publications.size && this.#core.phase === "up") {
      const drained = this.waitUntil(() => !this.#publications.size);
      await within(drained, limits.DRAIN_TIMEOUT_MS, "results are missing").catch(() => {});
    }
    this.disconnect();
    this.#closed = true;
    this.#unwatch();
    clearTimeout(this.#expecting);
    clearTimeout(this.#renewing);
    for (const subscription of this.#shared.all()) subscription.close();
    this.#look();
  }

  /**
   * For the subscriptions as well: wait, and reject with what says that it never comes.
   *
   * @param {() => boolean} isThere
   * @returns {Promise<void>}
   */
  waitUntil(isThere) {
    return new Promise((resolve, reject) => {
      this.#waiters.push({ isThere, resolve, reject });
      this.#look();
    });
  }

  /** Tell those who wait for something that it is there, or that it never comes. */
  #look() {
    let trouble = this.#stopped ?? this.#unreachable;
    if (this.#closed) trouble = new NotOpenError("the client was closed; make another one");
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) {
      if (waiter.isThere()) waiter.resolve();
      else if (trouble) waiter.reject(trouble);
      else this.#waiters.push(waiter);
    }
  }

  #requireOpen() {
    if (this.#closed) throw new NotOpenError("the client was closed; make another one");
  }

  /** @param {number} timeoutMs */
  #expectConnection(timeoutMs) {
    if (!timeoutMs) return;
    this.#expecting = setTimeout(() => {
      if (this.#stopped) return;
      const reason = `no server was reached in ${timeoutMs / 1000} s: ${this.#core.failure}`;
      this.#unreachable = new ConnectError(reason);
      this.#driver.perform(this.#core.giveUp(reason));
      this.#failAll(this.#unreachable);
    }, timeoutMs);
  }

  /** @param {Error} error */
  #failAll(error) {
    this.#look();
    for (const subscription of this.#shared.all()) subscription.fail(error);
  }

  /** Follow what a browser says about the page: network back, page put aside and taken up again. */
  #watchPage() {
    const page = globalThis.window;
    if (!page?.addEventListener) return;
    const reconnect = () => {
      if (this.#core.phase === "waiting") this.connect();
    };
    const visible = () => {
      if (page.document?.visibilityState === "visible") reconnect();
    };
    // A page with an open connection is not kept for going back to it.
    const hide = (/** @type {PageTransitionEvent} */ event) => {
      if (event.persisted) this.disconnect();
    };
    const show = (/** @type {PageTransitionEvent} */ event) => {
      if (event.persisted) this.connect();
    };
    const watching = new AbortController();
    const { signal } = watching;
    page.addEventListener("online", reconnect, { signal });
    page.document?.addEventListener("visibilitychange", visible, { signal });
    page.addEventListener("pagehide", hide, { signal });
    page.addEventListener("pageshow", show, { signal });
    this.#unwatch = () => watching.abort();
  }

  /**
   * Use these servers from the next connection on.
   *
   * @param {string | string[]} servers
   */
  setServers(servers) {
    this.#core.setServers(serversOf(servers));
  }

  /**
   * Use this token; on a live connection it is renewed without a reconnect.
   *
   * @param {string} token
   */
  setToken(token) {
    this.#requireOpen();
    this.#stopped = null;
    this.#driver.perform(this.#core.setToken(token, now()));
  }

  /** Get a token from the application's function, again and again until there is one. */
  async #renewToken() {
    clearTimeout(this.#renewing);
    if (this.#isRenewing) return;
    this.#isRenewing = true;
    try {
      const token = await /** @type {() => string | Promise<string>} */ (this.#token)();
      if (this.#closed) return;
      if (!isText(token)) throw new ArgumentError(`the token is a string, not ${shown(token)}`);
      this.#tokenUntried = true;
      this.setToken(token);
      this.connect();
    } catch (error) {
      if (this.#closed) return;
      const info = `no token: ${/** @type {Error} */ (error).message}`;
      this.#tell({ status: "TOKEN_INVALID", info });
      this.#renewing = setTimeout(() => this.#renewToken(), TOKEN_RETRY_MS);
    } finally {
      this.#isRenewing = false;
    }
  }

  // Subscribing

  /**
   * Subscribe to a subject or pattern, or a list of them.
   *
   * `history`: so many cached messages first. `conflationMs`: at most one message a subject in this
   * time.
   *
   * @param {string | string[]} subjects
   * @param {{history?: number, conflationMs?: number} | ((message: Message) => void)} [options]
   * @param {(message: Message) => void} [callback] gets each message; without it iterate
   * @throws {ArgumentError}
   */
  subscribe(subjects, options = {}, callback = undefined) {
    this.#requireOpen();
    if (typeof options === "function") [options, callback] = [{}, options];
    checkOptions("subscribe", options, SUBSCRIBE_OPTIONS);
    if (callback && !isFunction(callback)) {
      throw new ArgumentError(`the callback of subscribe is a function, not ${shown(callback)}`);
    }
    const { history = 0, conflationMs = 0 } = options;
    const given = texts("subjects", subjects, "/a/b");
    const subscription = new Subscription(this, given, this.#bufferMessages, callback);
    this.#shared.add(subscription, history, conflationMs);
    // Those that were there before have been told, and nothing else would tell this one.
    const trouble = this.#stopped ?? this.#unreachable;
    if (trouble) subscription.fail(trouble);
    return subscription;
  }

  /**
   * For a subscription: wait until it has got all that comes before its live messages.
   *
   * A server's word counts only if the subscription was whole there since it was asked: not held for
   * a lack of room, and on the same connection.
   *
   * @param {Subscription} subscription
   */
  async caughtUp(subscription) {
    const shared = this.#shared;
    let since;
    do {
      await this.waitUntil(() => this.#core.phase === "up" && !shared.held(subscription));
      const mark = shared.askCaughtUp();
      const asked = (since = shared.interruptions);
      await this.waitUntil(() => shared.answered(mark) || shared.interruptions !== asked);
    } while (shared.interruptions !== since);
  }

  /**
   * Return the snapshots of a subject or pattern, once: a list, empty when there are none.
   *
   * @param {string | string[]} subjects
   * @returns {Promise<Message[]>}
   */
  async snapshot(subjects) {
    /** @type {Map<string, Message>} */
    const found = new Map();
    const subscription = this.subscribe(subjects, (message) => {
      if (message.type === "SNAPSHOT") found.set(message.subject, message);
    });
    try {
      await subscription.caughtUp();
    } finally {
      subscription.end();
    }
    if (subscription.refusal) throw subscription.refusal;
    return [...found.values()];
  }

  /**
   * For a subscription that ends, wholly or for some of its subjects.
   *
   * @param {Subscription} subscription
   * @param {string[]} subjects
   */
  leave(subscription, subjects) {
    this.#shared.remove(subscription, subjects);
    this.#look();
  }

  /** What is subscribed, in the order of subscription. */
  get subjects() {
    return this.#core.subscriptions.subjects();
  }

  /** Receive no more messages. */
  pause() {
    this.#driver.perform(this.#core.pause());
    this.#shared.interrupt();
  }

  /** Receive messages again, first those that were missed. */
  resume() {
    this.#driver.perform(this.#core.resume());
    this.#shared.goOn();
  }

  // Publishing

  /**
   * Publish and wait for the result.
   *
   * Rejects with PublishError when it was not taken, with TimeoutError when no result comes in
   * `timeoutMs`, or else that of the client: the publication goes on and may still be taken.
   *
   * @param {string} subject
   * @param {string | Uint8Array} content
   * @param {PublishOptions} [options]
   * @returns {Promise<PublishResult>}
   */
  async publish(subject, content, options = {}) {
    this.#requireOpen();
    const command = publication(subject, content, options);
    const timeoutMs = options.timeoutMs ?? this.#timeoutMs;
    const result = this.#submit(command);
    if (!timeoutMs) return result;
    const reason = `the publication to ${subject} had no result in ${timeoutMs / 1000} s; it may still be taken`;
    return within(result, timeoutMs, reason);
  }

  /**
   * Publish once there is room, and return the result.
   *
   * @param {Record<string, any>} command
   */
  async #submit(command) {
    while (this.#core.publicationsWaiting >= this.#core.settings.publicationsMax) {
      await this.waitUntil(
        () => this.#core.publicationsWaiting < this.#core.settings.publicationsMax,
      );
    }
    this.#requireOpen();
    const { publication: number, outputs } = this.#core.publish(command);
    /** @type {Promise<PublishResult>} */
    const result = new Promise((resolve, reject) => {
      this.#publications.set(number, { resolve, reject });
    });
    this.#driver.perform(outputs);
    if (this.#unreachable) this.#driver.perform(this.#core.giveUp(this.#unreachable.message));
    return result;
  }

  /** How far this publisher has come; keep it for a later run of the same publisher. */
  get numbering() {
    return this.#core.numbering;
  }

  /**
   * Publish with a reply subject of its own and wait for the first reply.
   *
   * @param {string} subject
   * @param {string | Uint8Array} content
   * @param {PublishOptions} [options] `timeoutMs` is 30 s by default
   * @returns {Promise<Message>}
   */
  async request(subject, content, { timeoutMs = limits.REQUEST_TIMEOUT_MS, ...options } = {}) {
    this.#requireOpen();
    this.#requests += 1;
    const replySubject = `/replies/${this.#name}/${this.#requests}`;
    const replies = this.subscribe(replySubject);
    try {
      const reply = replies.next();
      const published = this.publish(subject, content, { ...options, replySubject });
      const both = published.then(() => reply);
      // Whatever comes first counts; what comes later is nobody's.
      reply.catch(() => {});
      both.catch(() => {});
      const reason = `no reply to the request to ${subject} came in ${timeoutMs / 1000} s`;
      const { value } = await within(both, timeoutMs, reason);
      if (value === undefined) throw new NotOpenError("the client was closed before a reply came");
      return value;
    } finally {
      replies.end();
    }
  }

  /**
   * Answer a message that asks for a reply.
   *
   * A reply is not retained, and STANDARD when nothing else is said: nobody but the one who asked,
   * and waits, is interested.
   *
   * @param {Message} message
   * @param {string | Uint8Array} content
   * @param {PublishOptions} [options]
   */
  reply(message, content, options = {}) {
    if (message.replySubject === undefined) {
      throw new ArgumentError(`the message of ${message.subject} asks for no reply`);
    }
    const unlessSaid = /** @type {PublishOptions} */ ({ retained: false, qos: "STANDARD" });
    return this.publish(message.replySubject, content, { ...unlessSaid, ...options });
  }

  // For the driver and the subscriptions

  /**
   * For a subscription: it has room again.
   *
   * @param {Subscription} subscription
   */
  release(subscription) {
    this.#shared.release(subscription);
    this.#look();
  }

  /** @param {Output} output */
  #take(output) {
    switch (output.kind) {
      case "deliver":
        return this.#shared.deliver(output);
      case "subscribed":
        this.#shared.subscribed(output.subjects);
        return this.#look();
      case "refused":
        this.#shared.refused(output.subjects, output.reason);
        return this.#look();
      case "reported":
        this.#shared.reported(output.mark);
        return this.#look();
      case "connected":
        this.#connected();
        return this.#look();
      case "published":
        return this.#published(output.result);
      case "notify":
        return this.#notified(output.notice, output.asks);
      case "stopped":
        return this.#stop(output.code, output.reason);
    }
  }

  /** @param {PublishResult} result */
  #published(result) {
    const waiting = this.#publications.get(result.publication);
    this.#publications.delete(result.publication);
    if (result.status === "PUBLISH_OK") waiting?.resolve(result);
    else waiting?.reject(new PublishError(result));
    this.#look();
  }

  /**
   * @param {Notice} notice
   * @param {boolean} [asks] false: another client of the same connection is asked for a token
   */
  #notified(notice, asks = true) {
    this.#tell(notice);
    const isNeeded = notice.status === "TOKEN_TO_EXPIRE" || this.#core.phase === "needs token";
    if (isNeeded && asks && isFunction(this.#token)) this.#renewToken();
  }

  /**
   * @param {number} code
   * @param {string} reason
   */
  #stop(code, reason) {
    // A token may have ended while the page was asleep: another one gets its try.
    if (code === CLOSE_CONNECT_DENIED && isFunction(this.#token) && !this.#tokenUntried) {
      this.#renewToken();
      return;
    }
    this.#stopped = new StoppedError(code, reason);
    this.#failAll(this.#stopped);
  }

  /** @param {Notice} notice */
  #tell(notice) {
    this.dispatchEvent(new CustomEvent("status", { detail: notice }));
  }

  #connected() {
    clearTimeout(this.#expecting);
    this.#unreachable = this.#stopped = null;
    this.#tokenUntried = false;
    // After what the others missed was asked for.
    if (this.#shared.connected()) queueMicrotask(() => this.#shared.goOn());
  }
}

/**
 * Connect to a server and return the client once the connection stands.
 *
 * @param {string | string[]} [servers]
 * @param {ClientOptions} [options]
 */
export async function connect(servers, options) {
  const client = options?.shared
    ? await (await import("./tabs.js")).sharedClient(servers, options)
    : new Client(servers, options);
  try {
    return await client.connected();
  } catch (error) {
    await client.close();
    throw error;
  }
}

/** @param {unknown} servers */
function serversOf(servers) {
  return texts("servers", servers ?? globalThis.location?.host, "127.0.0.1:8800");
}

/**
 * @template T
 * @param {Promise<T>} promise
 * @param {number} timeoutMs
 * @param {string} reason
 * @returns {Promise<T>}
 */
async function within(promise, timeoutMs, reason) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new TimeoutError(reason)), timeoutMs);
  });
  promise.catch(() => {});
  try {
    return await /** @type {Promise<T>} */ (Promise.race([promise, late]));
  } finally {
    clearTimeout(timer);
  }
}
