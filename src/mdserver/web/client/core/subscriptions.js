/** What a client wants to receive, and the commands that say so again after a reconnect. */

import { COMMAND_BYTES_MAX, SUBJECTS_PER_COMMAND_MAX } from "./limits.js";
import { parseInterest, segmentsOf, utf8Bytes } from "./subjects.js";

/**
 * How a subject or pattern is subscribed.
 *
 * @typedef {{history: number, conflationMs: number}} Options
 * @typedef {import("./positions.js").Position} Position
 * @typedef {import("./subjects.js").Pattern} Pattern
 * @typedef {Record<string, any>} Command
 */

/** About what a position takes in JSON besides its subject and history id. */
const POSITION_BYTES = 80;

/** Subjects and patterns with their options, in the order of subscription. */
export class Subscriptions {
  /** Subjects that are recovered one by one beside their pattern. @type {Set<string>} */
  lone = new Set();
  /** @type {Map<string, Options>} */
  #wanted = new Map();
  /** @type {Map<string, Pattern>} */
  #patterns = new Map();
  /** @type {Set<string>} */
  #held = new Set();
  /** @type {Map<string, Options>} */
  #replayLater = new Map();
  /** @type {Set<string>} */
  #replaying = new Set();
  #positions;

  /** @param {import("./positions.js").Positions} positions */
  constructor(positions) {
    this.#positions = positions;
  }

  /** @param {string} subject */
  has(subject) {
    return this.#wanted.has(subject);
  }

  /** Return what is subscribed, in the order of subscription. */
  subjects() {
    return [...this.#wanted.keys()];
  }

  /**
   * Subscribe, or change the options.
   *
   * `replay`: what they bring first is wanted also when it was seen already.
   *
   * @param {string[]} subjects
   * @param {Options} options
   * @param {boolean} replay
   * @throws {InvalidSubjectError} before anything changed
   */
  add(subjects, options, replay) {
    const parsed = subjects.map((subject) => /** @type {const} */ ([subject, parseInterest(subject)]));
    for (const [subject, pattern] of parsed) {
      this.#wanted.set(subject, options);
      this.lone.delete(subject);
      if (pattern) this.#patterns.set(subject, pattern);
      const isSeen = this.#positions.get(subject) !== undefined;
      if (replay && pattern) this.#positions.replayPattern(subject, pattern);
      else if (replay || (options.history && isSeen)) this.#positions.replay(subject);
    }
  }

  /**
   * End subscriptions and forget what was seen through them; gives those that existed.
   *
   * @param {string[]} subjects
   */
  remove(subjects) {
    const removed = subjects.filter((subject) => this.#wanted.delete(subject));
    for (const gone of removed) {
      this.#held.delete(gone);
      const pattern = this.#patterns.get(gone);
      this.#patterns.delete(gone);
      if (pattern) this.#positions.forget(gone);
      for (const subject of pattern ? this.#seenBy(pattern) : [gone]) {
        if (!this.covers(subject)) this.#positions.forget(subject);
      }
    }
    return removed;
  }

  /**
   * Return what to unsubscribe for these: with a pattern, what is recovered one by one under it.
   *
   * @param {string[]} subjects
   */
  ending(subjects) {
    const ending = [...subjects];
    for (const subject of this.lone.size ? subjects : []) {
      const pattern = parseInterest(subject);
      if (!pattern) continue;
      for (const one of [...this.lone].filter((lone) => pattern.matches(segmentsOf(lone)))) {
        this.lone.delete(one);
        ending.push(one);
      }
    }
    return ending;
  }

  /**
   * Return whether messages of this subject are wanted.
   *
   * @param {string} subject
   */
  covers(subject) {
    return this.covering(subject).length > 0;
  }

  /**
   * Return the subscriptions that cover a subject; of a pattern only its own.
   *
   * @param {string} name
   */
  covering(name) {
    const covering = this.#wanted.has(name) ? [name] : [];
    if (!this.#patterns.size || this.#patterns.has(name)) return covering;
    const segments = segmentsOf(name);
    for (const [text, pattern] of this.#patterns) {
      if (pattern.matches(segments)) covering.push(text);
    }
    return covering;
  }

  /**
   * Return whether this is subscribed, and not held.
   *
   * @param {string} name
   */
  isTaken(name) {
    return this.#wanted.has(name) && !this.#held.has(name);
  }

  /**
   * Take nothing of these for now; gives those that are held only now.
   *
   * @param {string[]} subjects
   */
  hold(subjects) {
    const held = subjects.filter((subject) => this.#wanted.has(subject) && !this.#held.has(subject));
    for (const subject of held) this.#held.add(subject);
    return held;
  }

  /**
   * Take messages again; gives those that were held.
   *
   * @param {string[]} subjects
   */
  release(subjects) {
    return subjects.filter((subject) => this.#held.delete(subject));
  }

  /**
   * Return whether a message is wanted; after an unsubscription some still come for a moment.
   *
   * What is not taken leaves no position, so that it is recovered later.
   *
   * @param {import("../codec/events.js").MessageEvent} event
   */
  takes(event) {
    const match = event.match ?? event.subject;
    if (this.#held.size && (this.#held.has(event.subject) || this.#held.has(match))) return false;
    return this.#wanted.has(match) || this.covers(event.subject);
  }

  /** Note that the server knows of no subscription. */
  connected() {
    this.lone = new Set();
    this.#replayLater = new Map();
    this.#replaying = new Set();
  }

  /**
   * Return what asks for the snapshot of a subject that was recovered one by one just now.
   *
   * A subscription that joined meanwhile wants it; it waited because an answer to the first command
   * would have been taken for that to the second.
   *
   * @param {string} subject
   */
  replays(subject) {
    const options = this.#replayLater.get(subject);
    this.#replayLater.delete(subject);
    if (options === undefined || !this.lone.has(subject)) {
      this.#replaying.delete(subject);
      return [];
    }
    this.#replaying.add(subject);
    return this.firstCommands([subject], options, { replay: true });
  }

  /**
   * Return whether the status that begins a replay of this subject is still to come.
   *
   * @param {string} subject
   */
  replayAwaited(subject) {
    return this.#replayLater.has(subject) || this.#replaying.has(subject);
  }

  /**
   * Return whether a subject was recovered one by one and is not needed beside its pattern now.
   *
   * What was missed comes in one go with the first word about the subject, so that nothing is lost
   * when the single subscription ends after that.
   *
   * @param {string} subject
   */
  recovered(subject) {
    return this.lone.delete(subject);
  }

  /**
   * Return commands that subscribe to these again, each subject with the position to recover from.
   *
   * `replay`: also to what is held, and with the snapshot or history besides what was missed. The
   * positions are needed even when nothing seems to be missed: until the server has worked off the
   * command, it keeps live messages back as a part of what the command brings.
   *
   * @param {string[]} subjects
   * @param {{replay?: boolean}} [how]
   * @returns {Command[]}
   */
  commands(subjects, { replay = false } = {}) {
    const isTaken = (/** @type {string} */ subject) => replay || !this.#held.has(subject);
    /** @type {Map<string, {options: Options, chunk: string[]}>} */
    const exact = new Map();
    for (const subject of subjects) {
      if (this.#patterns.has(subject)) continue;
      const options = /** @type {Options} */ (this.#wanted.get(subject));
      const key = `${options.history} ${options.conflationMs}`;
      if (!exact.has(key)) exact.set(key, { options, chunk: [] });
      exact.get(key)?.chunk.push(subject);
    }
    /** @type {Command[]} */
    const commands = [];
    for (const { options, chunk } of exact.values()) {
      commands.push(...this.firstCommands(chunk.filter(isTaken), options, { replay }));
    }
    for (const pattern of subjects.filter(isTaken)) {
      if (this.#patterns.has(pattern)) commands.push(...this.#patternCommands(pattern, replay));
    }
    return commands;
  }

  /**
   * Return subscribe commands of a bounded size, with positions when there are any.
   *
   * `anew`: without them when the application asked for what it has seen.
   *
   * A subject of one segment comes alone: not every server takes it, and the error that comes back
   * names the command only.
   *
   * @param {Iterable<string>} subjects
   * @param {Options} options
   * @param {{anew?: boolean, replay?: boolean}} [how]
   * @returns {Command[]}
   */
  firstCommands(subjects, options, { anew = false, replay = false } = {}) {
    /** @type {Command[]} */
    const commands = [];
    /** @type {string[]} */
    let chunk = [];
    /** @type {Record<string, Position>} */
    let positions = {};
    let size = 0;
    const finish = () => {
      if (chunk.length) commands.push(subscribe(chunk, options, positions, replay));
      chunk = [];
      positions = {};
      size = 0;
    };
    for (const subject of subjects) {
      const isSeenAnew = anew && this.#positions.replayed.has(subject);
      const seen = isSeenAnew ? undefined : this.#positions.get(subject);
      if (subject.lastIndexOf("/") === 0) {
        commands.push(subscribe([subject], options, seen ? { [subject]: seen } : {}, replay));
        continue;
      }
      const bytes = cost(subject, seen);
      if (size + bytes > COMMAND_BYTES_MAX || chunk.length >= SUBJECTS_PER_COMMAND_MAX) finish();
      chunk.push(subject);
      size += bytes;
      if (seen) positions[subject] = seen;
    }
    finish();
    return commands;
  }

  /**
   * Return a pattern's command, with positions of the subjects it matched so far.
   *
   * A position under the pattern itself counts for all others. When these are too many for one command, the subjects are recovered one by one: each is
   * subscribed beside the pattern until `recovered`. The pattern comes last, because it would bring
   * the snapshots of all that is not subscribed by then. Those that are recovered so already are
   * left alone: an answer on its way would be taken for that to a second command. What is to be
   * replayed of them is asked for after that answer (`replays`).
   *
   * @param {string} text
   * @param {boolean} replay
   */
  #patternCommands(text, replay) {
    const options = /** @type {Options} */ (this.#wanted.get(text));
    const pattern = /** @type {Pattern} */ (this.#patterns.get(text));
    /** @type {Record<string, Position>} */
    const positions = {};
    let size = 0;
    for (const subject of this.#seenBy(pattern)) {
      if (this.#wanted.has(subject)) continue;
      if (this.lone.has(subject)) {
        if (replay) this.#replayLater.set(subject, options);
        continue;
      }
      const seen = /** @type {Position} */ (this.#positions.get(subject));
      positions[subject] = seen;
      size += cost(subject, seen);
    }
    const own = this.#positions.get(text);
    const under = own ? { [text]: own } : {};
    if (size <= COMMAND_BYTES_MAX) {
      return [subscribe([text], options, { ...positions, ...under }, replay)];
    }
    const seen = Object.keys(positions);
    for (const subject of seen) this.lone.add(subject);
    const alone = replay ? options : { history: 0, conflationMs: options.conflationMs };
    return [
      ...this.firstCommands(seen, alone, { replay }),
      subscribe([text], options, under, replay),
    ];
  }

  /** @param {Pattern} pattern */
  #seenBy(pattern) {
    return this.#positions.subjects().filter((subject) => pattern.matches(segmentsOf(subject)));
  }
}

/**
 * Return about how many bytes a subject takes in a command.
 *
 * @param {string} subject
 * @param {Position | undefined} position
 */
function cost(subject, position) {
  const size = utf8Bytes(subject) + 4;
  return position === undefined ? size : 2 * size + position.history.length + POSITION_BYTES;
}

/**
 * @param {string[]} subjects
 * @param {Options} options
 * @param {Record<string, Position>} positions
 * @param {boolean} replay
 * @returns {Command}
 */
function subscribe(subjects, { history, conflationMs }, positions, replay) {
  /** @type {Command} */
  const command = { op: "subscribe", subjects };
  if (history) command.history = history;
  if (conflationMs) command.conflation_ms = conflationMs;
  if (Object.keys(positions).length) {
    command.positions = positions;
    if (replay) command.replay = true;
  }
  return command;
}
