/** The servers a client may connect to, and the weighted choice among them. */

import { ArgumentError } from "../errors.js";

const WEIGHT_DEFAULT = 100;
/** @type {Record<string, boolean>} */
const SECURE = { http: false, ws: false, https: true, wss: true };
const ADDRESS = /^(?:([a-z]+):\/\/)?(\[[0-9a-f:.]+\]|[^\s/?#@[\]:]+)(?::(\d{1,5}))?\/?$/i;

/**
 * One address; `secure` is null when the client's own encryption setting decides.
 *
 * @typedef {{host: string, port: number, secure: boolean | null, weight: number}} Server
 */

/**
 * Return how a server is written in notices.
 *
 * @param {Server} server
 */
export function authority({ host, port }) {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/**
 * Read `[weight] [scheme://]host[:port]`, for instance `100 push.example.com:8800`.
 *
 * The weight is an integer from 0 to 100, 100 when none is given; 0 means: only when no other
 * server is left. The scheme is http, ws, https or wss. Without a port it is 80, or 443 when the
 * scheme, or else `secure`, asks for encryption.
 *
 * @param {string} text
 * @param {boolean} secure
 * @returns {Server}
 * @throws {ArgumentError}
 */
export function parseServer(text, secure) {
  const [first, ...rest] = text.trim().split(/\s+/);
  if (rest.length && !(/^\d{1,3}$/.test(first) && Number(first) <= 100)) {
    throw new ArgumentError(`'${text}': the weight before the address is an integer, 0 to 100`);
  }
  const address = rest.length ? rest.join(" ") : first;
  const parts = ADDRESS.exec(address);
  const port = parts?.[3] === undefined ? undefined : Number(parts[3]);
  if (!parts || port === 0 || (port ?? 0) > 65535) {
    throw new ArgumentError(`'${text}' is no address of a server; write [weight] host:port`);
  }
  const scheme = parts[1]?.toLowerCase();
  if (scheme !== undefined && !(scheme in SECURE)) {
    throw new ArgumentError(`'${text}': the scheme is one of http, ws, https, wss`);
  }
  const ownSecure = scheme === undefined ? null : SECURE[scheme];
  return {
    host: parts[2].replace(/^\[|\]$/g, "").toLowerCase(),
    port: port ?? ((ownSecure ?? secure) ? 443 : 80),
    secure: ownSecure,
    weight: rest.length ? Number(first) : WEIGHT_DEFAULT,
  };
}

/**
 * Chooses where to connect: by weight, and not again where it just failed.
 *
 * Servers that failed are left out until all have failed; then a new round begins, in which the one
 * that failed last is left out if there is another one.
 */
export class ServerChoice {
  /** @type {Map<string, Server>} */
  #servers = new Map();
  /** @type {Map<string, Server>} */
  #preferred = new Map();
  /** @type {Set<string>} in the order of failure */
  #failed = new Set();

  /** @param {Server[]} servers */
  constructor(servers) {
    this.replace(servers);
  }

  /** How many servers there are to choose from. */
  get count() {
    return this.#servers.size;
  }

  /**
   * Use these servers from the next attempt on.
   *
   * @param {Server[]} servers
   * @throws {ArgumentError} when there are none
   */
  replace(servers) {
    if (!servers.length) throw new ArgumentError("a client needs at least one server");
    this.#servers = byKey(servers);
    this.#preferred = new Map();
    this.#failed = new Set();
  }

  /**
   * Try these first, as a member said; they need not be among the client's own.
   *
   * @param {Server[]} servers
   */
  prefer(servers) {
    this.#preferred = byKey(servers);
  }

  /**
   * Note that a connection to this server failed, or that it asked to leave.
   *
   * @param {Server} server
   */
  failed(server) {
    const key = keyOf(server);
    this.#failed.delete(key);
    this.#failed.add(key);
    this.#preferred.delete(key);
  }

  /** Note that a connection stands: all servers are as good as any again. */
  succeeded() {
    this.#failed = new Set();
    this.#preferred = new Map();
  }

  /**
   * Return the server for the next attempt.
   *
   * @param {() => number} random
   */
  choose(random) {
    let candidates = [...this.#preferred.values()];
    if (!candidates.length) candidates = this.#without(this.#failed);
    if (!candidates.length) {
      const last = /** @type {string} */ ([...this.#failed].pop());
      this.#failed = new Set([last]);
      candidates = this.#without(this.#failed);
      if (!candidates.length) candidates = [...this.#servers.values()];
    }
    const total = candidates.reduce((sum, server) => sum + server.weight, 0);
    if (total === 0) return candidates[Math.floor(random() * candidates.length)];
    let point = random() * total;
    for (const server of candidates) {
      point -= server.weight;
      if (point < 0) return server;
    }
    return candidates[candidates.length - 1];
  }

  /** @param {Set<string>} keys */
  #without(keys) {
    return [...this.#servers].filter(([key]) => !keys.has(key)).map(([, server]) => server);
  }
}

/** @param {Server[]} servers */
function byKey(servers) {
  return new Map(servers.map((server) => [keyOf(server), server]));
}

/** @param {Server} server */
function keyOf(server) {
  return `${server.weight} ${server.secure} ${authority(server)}`;
}
