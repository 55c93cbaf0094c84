/**
 * Subscriptions that a client takes up again, and messages of before that still arrive.
 *
 * A client that is paused, or holds a subscription, drops what arrives. When it goes on, it
 * subscribes again from the position that it has. Messages of the earlier subscription may still be
 * on their way then. If one of them were taken, it would set the position of its subject beyond
 * those that were dropped; what the server brings of these, or its snapshot, would then pass for a
 * repeat and be lost. The same holds for a subject that was unsubscribed and is subscribed again.
 *
 * So the client sends a ping before it subscribes again, and takes nothing of these subscriptions
 * until the pong, neither messages nor the answer to the earlier one: commands are answered in order.
 */

import { SUBJECTS_PER_COMMAND_MAX } from "./limits.js";

/** The subscriptions of one connection that are taken up again and whose pong has not come. */
export class Returning {
  #count = 0;
  /** What the ping of a client that resumes says. */
  #all = "";
  /** Subjects and patterns, with what their ping says. @type {Map<string, string>} */
  #named = new Map();
  /** The newest that were unsubscribed. @type {Set<string>} */
  #left = new Set();

  /**
   * Return the ping that goes out before these subjects and patterns, or all if there are none.
   *
   * @param {string[]} [names]
   */
  begin(names) {
    this.#count += 1;
    const t = `r${this.#count}`;
    if (!names) this.#all = t;
    for (const name of names ?? []) this.#named.set(name, t);
    return { op: "ping", t };
  }

  /**
   * Take again what waited for this pong, if something did.
   *
   * @param {unknown} t
   */
  passed(t) {
    if (this.#all === t) this.#all = "";
    for (const [name, last] of this.#named) if (last === t) this.#named.delete(name);
  }

  /**
   * Return whether what arrives about a subject or pattern may be of before.
   *
   * @param {string} name
   */
  awaits(name) {
    return this.#all !== "" || this.#named.has(name);
  }

  /**
   * Note subjects and patterns that are unsubscribed.
   *
   * Only as many are kept as one command could name: their messages arrive for a moment only.
   *
   * @param {string[]} names
   */
  leave(names) {
    for (const name of names) this.#left.add(name);
    for (const name of this.#left) {
      if (this.#left.size > SUBJECTS_PER_COMMAND_MAX) this.#left.delete(name);
    }
  }

  /**
   * Return those that were unsubscribed before, and forget that.
   *
   * @param {string[]} names
   */
  left(names) {
    return names.filter((name) => this.#left.delete(name));
  }
}
