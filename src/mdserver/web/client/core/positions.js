/** What a client has seen of each subject: to recover from there, and to drop what comes twice. */

import { POSITIONS_MAX } from "./limits.js";
import { parseInterest, segmentsOf } from "./subjects.js";

/**
 * @typedef {{history: string, epoch: number, seq: number}} Position
 * @typedef {import("../codec/events.js").MessageEvent} MessageEvent
 */

/**
 * The newest position of each subject.
 *
 * At the bound the oldest subject is forgotten: it then gets its snapshot instead of a recovery.
 */
export class Positions {
  history = "";
  /** @type {Set<string>} */
  replayed = new Set();
  /** @type {Map<string, import("./subjects.js").Pattern>} */
  #patternsReplayed = new Map();
  /** @type {Map<string, Position>} */
  #seen = new Map();

  /** Return the subjects that have a position. */
  subjects() {
    return [...this.#seen.keys()];
  }

  /**
   * Take over the positions of an earlier client.
   *
   * @param {Record<string, Position>} positions
   */
  restore(positions) {
    for (const [subject, seen] of Object.entries(positions)) this.#seen.set(subject, seen);
  }

  /**
   * Note that messages from now on are numbered in this history.
   *
   * @param {string} history
   */
  connected(history) {
    this.history = history;
    this.replayed = new Set();
    this.#patternsReplayed = new Map();
  }

  /**
   * Number these subjects anew; the numbering of all others goes on under the new id.
   *
   * What a named pattern covers may or may not be numbered anew: it keeps the old id, by which the
   * server can tell.
   *
   * @param {string} history
   * @param {string[]} subjects
   * @throws {InvalidSubjectError}
   */
  reset(history, subjects) {
    const patterns = [];
    for (const subject of subjects) {
      const pattern = parseInterest(subject);
      if (pattern) patterns.push(pattern);
      else this.#seen.delete(subject);
    }
    const old = this.history;
    this.history = history;
    if (old === history) return;
    for (const [subject, seen] of this.#seen) {
      const segments = segmentsOf(subject);
      if (seen.history === old && !patterns.some((pattern) => pattern.matches(segments))) {
        this.#seen.set(subject, { ...seen, history });
      }
    }
  }

  /**
   * Note that the application asked for what it has seen of a subject as well.
   *
   * Also for what it will have seen by the time when the answer comes.
   *
   * @param {string} subject
   */
  replay(subject) {
    this.replayed.add(subject);
  }

  /**
   * Note the same for all subjects of a pattern.
   *
   * @param {string} text
   * @param {import("./subjects.js").Pattern} pattern
   */
  replayPattern(text, pattern) {
    this.#patternsReplayed.set(text, pattern);
  }

  /**
   * Forget a subject or pattern that is not subscribed any more.
   *
   * @param {string} subject
   */
  forget(subject) {
    this.#seen.delete(subject);
    this.replayed.delete(subject);
    this.#patternsReplayed.delete(subject);
  }

  /**
   * Return the position to recover from.
   *
   * @param {string} subject
   */
  get(subject) {
    return this.#seen.get(subject);
  }

  /**
   * Return whether a message was seen and asked for again.
   *
   * @param {MessageEvent} message
   */
  repeats(message) {
    if ((message.type !== "SNAPSHOT" && message.type !== "HISTORICAL") || !message.seq) return false;
    return this.#isSeen(message) && this.#isReplayed(message.subject);
  }

  /** @param {string} subject */
  #isReplayed(subject) {
    if (this.replayed.has(subject)) return true;
    const segments = segmentsOf(subject);
    return [...this.#patternsReplayed.values()].some((pattern) => pattern.matches(segments));
  }

  /**
   * Note where subjects stood that had no message yet; what is known of one counts for more.
   *
   * The answer to a subscription says so. It counts for nothing if the numbering began anew.
   *
   * @param {Record<string, Position>} told
   */
  begin(told) {
    for (const [subject, at] of Object.entries(told)) {
      const room = this.#seen.size < POSITIONS_MAX;
      if (room && at.history === this.history && !this.#seen.has(subject)) {
        this.#seen.set(subject, { history: at.history, epoch: at.epoch, seq: at.seq });
      }
    }
  }

  /**
   * Return whether a message is new; notes its position if so.
   *
   * STANDARD messages have no position and are always new. Positions of different history ids are
   * never compared.
   *
   * @param {MessageEvent} message
   */
  accept(message) {
    if (message.seq === 0) return true;
    const { subject, epoch, seq } = message;
    if (this.#isSeen(message)) return false;
    if (!this.#seen.has(subject) && this.#seen.size >= POSITIONS_MAX) {
      this.forget(/** @type {string} */ (this.#seen.keys().next().value));
    }
    this.#seen.set(subject, { history: this.history, epoch, seq });
    return true;
  }

  /** @param {MessageEvent} message */
  #isSeen({ subject, epoch, seq }) {
    const seen = this.#seen.get(subject);
    if (seen === undefined || seen.history !== this.history) return false;
    return epoch < seen.epoch || (epoch === seen.epoch && seq <= seen.seq);
  }
}
