/**
 * Subscriptions that begin after another ended, and messages of before that still arrive.
 *
 * A client that is paused, or holds a subscription, drops what arrives. When it goes on, it
 * subscribes again from the position that it has. Messages of the earlier subscription may still be
 * on their way then. If one of them were taken, it would set the position of its subject beyond
 * those that were dropped; what the server brings of these, or its snapshot, would then pass for a
 * repeat and be lost. The same holds for what was unsubscribed, if it is subscribed again, or a
 * pattern that covers it, or a subject that it covers.
 *
 * So the client sends a ping before it subscribes, and takes nothing of these subscriptions until
 * the pong, neither messages nor the answer to an earlier one: commands are answered in order. A
 * ping that went out after the last `unsubscribe` serves for all subscriptions that follow; when its
 * pong has come, none is needed. What a subscription covers that was in force all the time is taken.
 */

import { parseInterest, segmentsOf } from "./subjects.js";

/** The subscriptions of one connection that wait for a pong. */
export class Returning {
  /** Whether an `unsubscribe` went out after the last ping: what was sent before may arrive. */
  unsubscribed = false;

  #pings = 0;
  #passed = 0;
  /** Subjects and patterns, with the number of their ping. @type {Map<string, number>} */
  #awaiting = new Map();
  /** Those of them that were held. @type {Map<string, number>} */
  #released = new Map();
  /**
   * Subscriptions that ended while others waited, and did not wait themselves, with the number of
   * the last ping before that: what they bring goes on without a gap in those that waited then.
   *
   * @type {Map<string, number>}
   */
  #ended = new Map();
  #subscriptions;

  /** @param {import("./subscriptions.js").Subscriptions} subscriptions */
  constructor(subscriptions) {
    this.#subscriptions = subscriptions;
  }

  /**
   * Note subjects and patterns of which the application wants no more, before they go.
   *
   * @param {string[]} names
   */
  leave(names) {
    for (const name of this.#awaiting.size ? names : []) {
      if (this.#isSteady(name)) this.#ended.set(name, this.#pings);
    }
  }

  /**
   * Note subjects and patterns that were not subscribed before; gives the ping to send before them.
   *
   * @param {string[]} names
   */
  begin(names) {
    if (!this.unsubscribed && this.#passed === this.#pings) return undefined;
    const added = new Set(names);
    const exposed = names.filter(
      (name) =>
        !this.#subscriptions.covering(name).some((one) => !added.has(one) && this.#isSteady(one)),
    );
    if (exposed.length && this.unsubscribed) return this.resume(exposed);
    for (const name of exposed) this.#awaiting.set(name, this.#pings);
  }

  /**
   * Take nothing of these subjects and patterns; gives the ping to send before them.
   *
   * @param {string[]} names
   */
  resume(names) {
    this.#pings += 1;
    this.unsubscribed = false;
    for (const name of names) this.#awaiting.set(name, this.#pings);
    return { op: "ping", t: `r${this.#pings}` };
  }

  /**
   * Take nothing of these, which were held, either.
   *
   * @param {string[]} names
   */
  release(names) {
    const ping = this.resume(names);
    for (const name of names) this.#released.set(name, this.#pings);
    return ping;
  }

  /**
   * Take again what waited for this pong, if something did.
   *
   * @param {unknown} t
   */
  passed(t) {
    const ping = Number(String(t).slice(1));
    if (t !== `r${ping}` || !(ping > this.#passed && ping <= this.#pings)) return;
    this.#passed = ping;
    for (const waiting of [this.#awaiting, this.#released, this.#ended]) {
      for (const [name, last] of waiting) if (last <= ping) waiting.delete(name);
    }
  }

  /**
   * Return whether what arrives about a subject or pattern may be of before.
   *
   * @param {string} name
   */
  awaits(name) {
    return this.#awaiting.has(name);
  }

  /**
   * Return whether a message leaves no gap, as far as this connection has to wait.
   *
   * @param {import("../codec/events.js").MessageEvent} event
   */
  takes({ subject, match = subject }) {
    if (!this.#awaiting.size) return true;
    if (this.#awaiting.has(subject) || this.#released.has(match)) return false;
    const covering = this.#subscriptions.covering(subject);
    const first = Math.min(...covering.map((name) => this.#awaiting.get(name) ?? Infinity));
    return (
      first === Infinity ||
      covering.some((name) => this.#isSteady(name)) ||
      [...this.#ended].some(([name, last]) => last >= first && covers(name, subject))
    );
  }

  /**
   * Return whether this is subscribed and not held, and waits for no pong.
   *
   * @param {string} name
   */
  #isSteady(name) {
    return !this.#awaiting.has(name) && this.#subscriptions.isTaken(name);
  }
}

/**
 * @param {string} name
 * @param {string} subject
 */
function covers(name, subject) {
  return name === subject || !!parseInterest(name)?.matches(segmentsOf(subject));
}
