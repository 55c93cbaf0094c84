/** The connections that the elements of a page share: one for each server. */

import { Client } from "../index.js";

/**
 * What an element learns of its connection: it stands, it does not and is tried again, or no server
 * wants this client. `info` is a sentence.
 *
 * @typedef {{state: "live" | "connecting" | "reconnecting" | "refused", info: string}} Condition
 * @typedef {{conditionChanged: () => void, denied: (subject: string, reason: string) => void}} Member
 */

/** How long a connection stays that no element uses: elements are often moved within a page. */
const UNUSED_MS = 1000;
/** Pages with elements are looked at, so the first attempts come soon. */
const OPTIONS = { connectTimeoutMs: 0, reconnect: { quickInitialDelayMs: 1000, maxDelayMs: 60_000 } };

/** @type {Map<string, Connection>} */
const connections = new Map();
/** @type {Connection | null} */
let chosen = null;

/** One client, and the elements that use it. */
export class Connection {
  client;
  /** @type {Set<Member>} */
  #members = new Set();
  #key;
  #down = "";
  #wasUp = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #unused;

  /**
   * @param {Client} client
   * @param {string | null} key null: the client is the application's, which closes it
   */
  constructor(client, key) {
    this.client = client;
    this.#key = key;
    client.addEventListener("status", (event) => {
      this.#told(/** @type {CustomEvent} */ (event).detail);
    });
  }

  /** @returns {Condition} */
  get condition() {
    switch (this.client.phase) {
      case "up":
        return { state: "live", info: "" };
      case "stopped":
        return { state: "refused", info: `The server refuses this page: ${this.#down}` };
      case "needs token":
        return { state: "refused", info: "The token of this page has expired." };
      default:
        if (!this.#down) return { state: "connecting", info: "Connecting" };
        return {
          state: this.#wasUp ? "reconnecting" : "connecting",
          info: `No connection: ${this.#down}. Trying again.`,
        };
    }
  }

  /** @param {Member} member */
  join(member) {
    clearTimeout(this.#unused);
    this.#members.add(member);
  }

  /** @param {Member} member */
  leave(member) {
    this.#members.delete(member);
    const key = this.#key;
    if (this.#members.size || key === null) return;
    this.#unused = setTimeout(() => {
      connections.delete(key);
      this.client.close();
    }, UNUSED_MS);
  }

  /** @param {import("../core/machine.js").Notice} notice */
  #told({ status, info = "", subject = "" }) {
    if (status === "SUBSCRIBE_DENY") {
      for (const member of this.#members) member.denied(subject, info);
    } else if (status === "SERVER_UP" || status === "SERVER_DOWN") {
      this.#wasUp ||= status === "SERVER_UP";
      this.#down = status === "SERVER_UP" ? "" : info.replace(/\.$/, "");
      for (const member of this.#members) member.conditionChanged();
    }
  }
}

/**
 * Have the elements without a `server` use this client from now on, for example one with a token.
 *
 * Call it before the page has such elements, or import the elements after it.
 *
 * @param {Client} client
 */
export function useClient(client) {
  chosen = new Connection(client, null);
}

/**
 * Return the connection to a server: that of `useClient`, or else the server that this module came
 * from, or else the one of the page, when none is named.
 *
 * @param {string | null} server
 * @throws {import("../errors.js").ArgumentError}
 */
export function connectionTo(server) {
  if (!server && chosen) return chosen;
  const key = server || ownServer();
  let connection = connections.get(key);
  if (connection === undefined) {
    connection = new Connection(new Client(key || undefined, OPTIONS), key);
    connections.set(key, connection);
  }
  return connection;
}

/** Return the server that serves this module, or "" when it is part of something else. */
function ownServer() {
  const { origin, pathname } = new URL(import.meta.url);
  return /^\/client\/([^/]+\/)?components\.js$/.test(pathname) ? origin : "";
}
