/**
 * Which subscriptions of a client get a message, and which subjects are subscribed for them.
 *
 * Subscriptions may overlap: a subject is subscribed once at the server for all that name it, and
 * what comes goes to each subscription that it matches.
 */

import { parseInterest, segmentsOf } from "./core/subjects.js";

const FOUND_MAX = 100_000;

/**
 * @typedef {import("./subscription.js").Subscription} Subscription
 * @typedef {import("./core/subjects.js").Pattern} Pattern
 */

/** The subscriptions of a client by subject and pattern, in the order of subscription. */
export class Routes {
  /** @type {Map<string, Set<Subscription>>} */
  #of = new Map();
  /** @type {Map<string, Pattern>} */
  #patterns = new Map();
  /** The takers of a subject, as long as no subscription changes. @type {Map<string, Subscription[]>} */
  #found = new Map();
  /** @type {Map<string, Set<Subscription>>} */
  #slow = new Map();

  /** Return each subscription once. */
  all() {
    return [...new Set([...this.#of.values()].flatMap((several) => [...several]))];
  }

  /**
   * Return the subscriptions that name this subject or pattern.
   *
   * @param {string} subject
   */
  named(subject) {
    return [...(this.#of.get(subject) ?? [])];
  }

  /**
   * Take a subscription in.
   *
   * @param {Subscription} subscription
   * @throws {InvalidSubjectError} before anything is changed
   */
  add(subscription) {
    const parsed = subscription.subjects.map(
      (subject) => /** @type {const} */ ([subject, parseInterest(subject)]),
    );
    this.#found.clear();
    for (const [subject, pattern] of parsed) {
      if (!this.#of.has(subject)) this.#of.set(subject, new Set());
      this.#of.get(subject)?.add(subscription);
      if (pattern) this.#patterns.set(subject, pattern);
    }
  }

  /**
   * Take one out; true when nobody needs the subject any more.
   *
   * @param {string} subject
   * @param {Subscription} subscription
   */
  remove(subject, subscription) {
    this.#found.clear();
    const several = this.#of.get(subject);
    several?.delete(subscription);
    if (several?.size) return false;
    this.#of.delete(subject);
    this.#patterns.delete(subject);
    return true;
  }

  /**
   * Return the subscriptions that a message of this subject is for.
   *
   * @param {string} subject
   */
  takers(subject) {
    let found = this.#found.get(subject);
    if (found === undefined) {
      if (this.#found.size >= FOUND_MAX) this.#found.clear();
      found = this.#search(subject);
      this.#found.set(subject, found);
    }
    return found;
  }

  /** @param {string} subject */
  #search(subject) {
    const takers = new Set(this.#of.get(subject));
    const segments = segmentsOf(subject);
    for (const [text, pattern] of this.#patterns) {
      if (!pattern.matches(segments)) continue;
      for (const subscription of this.#of.get(text) ?? []) takers.add(subscription);
    }
    return [...takers];
  }

  /**
   * Return what is subscribed and may bring messages that these bring as well.
   *
   * @param {string[]} subjects
   */
  overlapping(subjects) {
    const given = subjects.map((one) => /** @type {const} */ ([one, parseInterest(one)]));
    return [...this.#of.keys()].filter((there) => {
      const pattern = this.#patterns.get(there) ?? null;
      return given.some(([one, other]) => isOverlap(there, pattern, one, other));
    });
  }

  /**
   * Return the subscriptions whose messages may come through a subject or pattern.
   *
   * @param {string} subject
   */
  sharing(subject) {
    return this.#patterns.has(subject) ? this.overlapped([subject]) : this.takers(subject);
  }

  /**
   * Return the subscriptions that share messages with these subjects and patterns.
   *
   * @param {string[]} subjects
   */
  overlapped(subjects) {
    return [...new Set(this.overlapping(subjects).flatMap((one) => this.named(one)))];
  }

  /**
   * Note that a subscription is full; gives what is to be held, so that it misses nothing.
   *
   * What overlaps it is held as well: its messages come through that, too.
   *
   * @param {Subscription} subscription
   */
  hold(subscription) {
    return this.overlapping(subscription.subjects).filter((subject) => {
      const full = this.#slow.get(subject) ?? new Set();
      const isNew = !full.size;
      this.#slow.set(subject, full.add(subscription));
      return isNew;
    });
  }

  /**
   * Return what is to be held because a subscription was added: it overlaps a full one, whose
   * messages may come through it.
   */
  holdAgain() {
    const full = new Set([...this.#slow.values()].flatMap((several) => [...several]));
    return [...full].flatMap((subscription) => this.hold(subscription));
  }

  /**
   * Return whether one of these is held.
   *
   * @param {string[]} subjects
   */
  held(subjects) {
    return subjects.some((subject) => this.#slow.has(subject));
  }

  /**
   * Note that a subscription has room again; gives what nobody holds any more.
   *
   * @param {Subscription} subscription
   */
  release(subscription) {
    const released = [];
    for (const [subject, full] of [...this.#slow]) {
      if (!full.delete(subscription) || full.size) continue;
      this.#slow.delete(subject);
      released.push(subject);
    }
    return released;
  }
}

/**
 * @param {string} first
 * @param {Pattern | null} ofFirst
 * @param {string} second
 * @param {Pattern | null} ofSecond
 */
function isOverlap(first, ofFirst, second, ofSecond) {
  if (ofFirst && ofSecond) return ofFirst.meets(ofSecond);
  if (ofFirst) return ofFirst.matches(segmentsOf(second));
  if (ofSecond) return ofSecond.matches(segmentsOf(first));
  return first === second;
}
