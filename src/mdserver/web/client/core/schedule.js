/** When to reconnect: a quick phase, then one of two policies; and when to tell of trouble. */

import { RECONNECT_RATE_WINDOW_MS, STABLE_MS } from "./limits.js";

/**
 * The reconnect parameters of the client API.
 *
 * `notifyAfterFailedAttempts` counts a lost connection as a failed attempt: with 1 each loss is told
 * at once. `notifyRateThreshold` is the number of reconnects within three minutes beyond which
 * RECONNECT_RATE_EXCEEDED is told.
 *
 * @typedef {object} ReconnectSettings
 * @property {number} quickMaxRetries
 * @property {number} quickInitialDelayMs
 * @property {"TRUNCATED_EXPONENTIAL_BACKOFF" | "CONSTANT_WINDOW_BACKOFF"} policy
 * @property {number} timeIntervalMs
 * @property {number} maxDelayMs
 * @property {number} notifyAfterFailedAttempts
 * @property {number} notifyRateThreshold
 */

/**
 * What suits very many clients of one server, which must not come all at once.
 *
 * @type {Readonly<ReconnectSettings>}
 */
export const RECONNECT_BROWSER = Object.freeze({
  quickMaxRetries: 3,
  quickInitialDelayMs: 5000,
  policy: "TRUNCATED_EXPONENTIAL_BACKOFF",
  timeIntervalMs: 20_000,
  maxDelayMs: 360_000,
  notifyAfterFailedAttempts: 1,
  notifyRateThreshold: 15,
});

/**
 * What suits a service, of which there are few: back within 0.1 s, then 5 s.
 *
 * @type {Readonly<ReconnectSettings>}
 */
export const RECONNECT_SERVICE = Object.freeze({
  ...RECONNECT_BROWSER,
  quickInitialDelayMs: 100,
  timeIntervalMs: 250,
  maxDelayMs: 5000,
  notifyRateThreshold: 60,
});

/**
 * Return a number between two bounds.
 *
 * @param {() => number} random gives numbers from 0 up to 1
 * @param {number} low
 * @param {number} high
 */
export function uniform(random, low, high) {
  return low + (high - low) * random();
}

/** Counts failures and turns them into delays (milliseconds). */
export class Schedule {
  retries = 0;
  failures = 0;
  #hops = 0;
  #since = 0;
  /** @type {number[]} */
  #reconnects = [];

  /** @param {ReconnectSettings} settings */
  constructor(settings) {
    this.settings = settings;
  }

  /**
   * Note that a connection stands.
   *
   * @param {number} now
   */
  succeeded(now) {
    this.failures = 0;
    this.#since = now;
  }

  /**
   * Note that the connection ended; the quick phase begins anew if it had lasted a while.
   *
   * Else it goes on from where it was, to its end at most: a server that takes connections only to
   * drop them is not hammered, and a bad link not given up.
   *
   * @param {number} now
   */
  lost(now) {
    if (now - this.#since >= STABLE_MS) {
      this.retries = 0;
      this.#hops = 0;
    } else {
      this.retries = Math.max(0, Math.min(this.retries, this.settings.quickMaxRetries - 1));
    }
  }

  /**
   * Return whether a client that was sent away may go elsewhere at once: once for each server.
   *
   * @param {number} servers
   */
  hop(servers) {
    this.#hops += 1;
    return this.#hops <= servers;
  }

  /** Count a failed attempt or a loss; true when it is the one to be told of. */
  failed() {
    this.failures += 1;
    return this.failures === this.settings.notifyAfterFailedAttempts;
  }

  /**
   * Return how long to wait before the next attempt, which is counted as a retry.
   *
   * @param {() => number} random
   */
  nextDelayMs(random) {
    this.retries += 1;
    const { quickMaxRetries, quickInitialDelayMs: initial, policy, timeIntervalMs } = this.settings;
    if (this.retries <= quickMaxRetries) return initial * this.retries - uniform(random, 0, initial);
    if (policy === "CONSTANT_WINDOW_BACKOFF") return timeIntervalMs;
    return this.#exponentialMs(this.retries - quickMaxRetries, random);
  }

  /**
   * @param {number} retries counts from 1 after the quick phase
   * @param {() => number} random
   */
  #exponentialMs(retries, random) {
    const { timeIntervalMs: interval, maxDelayMs } = this.settings;
    // Beyond 64 doublings any positive interval is past any sensible maximum.
    const doubled = interval * 2 ** Math.min(retries, 64);
    return Math.min(doubled - uniform(random, 0, Math.min(interval * retries, doubled)), maxDelayMs);
  }

  /**
   * Note a reconnect; true when it takes the rate beyond the threshold.
   *
   * The count then starts anew, so that an endless flapping is told again and again, but not with
   * each reconnect.
   *
   * @param {number} now
   */
  reconnecting(now) {
    const kept = this.settings.notifyRateThreshold + 1;
    this.#reconnects = [...this.#reconnects, now].slice(-kept);
    if (this.#reconnects.length === kept && now - this.#reconnects[0] <= RECONNECT_RATE_WINDOW_MS) {
      this.#reconnects = [];
      return true;
    }
    return false;
  }
}
