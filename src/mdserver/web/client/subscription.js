/** A subscription: an asynchronous iterator of messages, or a callback for each of them. */

import { SubscribeError } from "./errors.js";

/**
 * @typedef {import("./message.js").Message} Message
 * @typedef {import("./codec/events.js").MessageEvent} MessageEvent
 */

/**
 * The subjects and patterns of one call of `Client.subscribe`, and their messages.
 *
 * `for await (const message of subscription)` gives the messages in order; leaving the loop ends the
 * subscription. A refused subject throws SubscribeError in its place, a server that does not want
 * the client back StoppedError; iterating again goes on with what remains. At most `bufferMessages`
 * messages wait here: beyond that the subjects are held at the server, and what is missed is
 * recovered once there is room again, so a slow application slows nothing but this subscription.
 *
 * With a callback each message is handed to it at once, and nothing waits here.
 */
export class Subscription {
  /** @type {string[]} */
  subjects;
  /** Why the server refused one of the subjects, if it did. @type {SubscribeError | null} */
  refusal = null;
  /** False while this one waits to begin beside subscriptions that overlap it. */
  started = true;
  #client;
  #bufferMessages;
  #callback;
  /** @type {(Message | Error)[]} */
  #queue = [];
  #taken = 0;
  /** @type {{resolve: (result: IteratorResult<Message, undefined>) => void, reject: (error: Error) => void}[]} */
  #takers = [];
  #closed = false;
  #held = false;
  /** @type {Set<string>} */
  #unconfirmed;
  /**
   * What this one was given of each subject since it joined; null when no join is unfinished.
   *
   * @type {Map<string, {history: string, epoch: number, seq: number}> | null}
   */
  #brought = null;
  /** The subjects whose snapshot came; null when it wants history. @type {Set<string> | null} */
  #begun = null;

  /**
   * @param {import("./client.js").Client} client
   * @param {string[]} subjects
   * @param {number} bufferMessages
   * @param {((message: Message) => void) | undefined} callback
   */
  constructor(client, subjects, bufferMessages, callback) {
    this.#client = client;
    this.#bufferMessages = bufferMessages;
    this.#callback = callback;
    this.subjects = [...new Set(subjects)];
    this.#unconfirmed = new Set(this.subjects);
  }

  /** @returns {AsyncIterableIterator<Message, undefined>} */
  [Symbol.asyncIterator]() {
    return this;
  }

  /**
   * Return the next message, or the end.
   *
   * @returns {Promise<IteratorResult<Message, undefined>>}
   */
  next() {
    if (this.#taken < this.#queue.length) {
      const item = this.#queue[this.#taken++];
      // Moving the rest forward at each message would cost its length each time.
      if (this.#taken * 2 > this.#queue.length) {
        this.#queue = this.#queue.slice(this.#taken);
        this.#taken = 0;
      }
      this.#makeRoom();
      if (item instanceof Error) return Promise.reject(item);
      return Promise.resolve({ value: item, done: false });
    }
    if (this.#closed) return Promise.resolve({ value: undefined, done: true });
    return new Promise((resolve, reject) => this.#takers.push({ resolve, reject }));
  }

  /**
   * End the subscription; called when a `for await` loop is left.
   *
   * @returns {Promise<IteratorReturnResult<undefined>>}
   */
  async return() {
    this.end();
    return { value: undefined, done: true };
  }

  /** Unsubscribe; messages that are here already can still be taken. */
  end() {
    this.#client.leave(this, [...this.subjects]);
  }

  /** Wait until the server has handled the subscription (also a refusal). */
  confirmed() {
    return this.#client.waitUntil(() => !this.#unconfirmed.size);
  }

  /**
   * Wait until what the subscription brings before live messages has come.
   *
   * That are the snapshots, the history or what was missed, of all subjects of a pattern; messages
   * have to be taken meanwhile.
   */
  caughtUp() {
    return this.#client.caughtUp(this);
  }

  // For the client

  /**
   * Begin beside subscriptions that overlap: nothing is taken before `started`.
   *
   * @param {number} history
   */
  join(history) {
    this.#brought = new Map();
    this.#begun = history ? null : new Set();
    this.started = false;
  }

  /** Note that the join is finished: what the others had before has come. */
  joined() {
    this.#brought = this.#begun = null;
  }

  /**
   * Return whether a message is for this one, which may have begun after others got it.
   *
   * What the others missed may come before the snapshot of a join, which is taken all the same: it
   * has more than that.
   *
   * @param {MessageEvent} event
   * @param {string} history
   * @param {boolean} repeated
   */
  wants({ subject, type, epoch, seq }, history, repeated) {
    if (!this.started) return false;
    if (this.#brought === null || !seq) return !repeated;
    const last = this.#brought.get(subject);
    const isSeen =
      last?.history === history &&
      (epoch < last.epoch || (epoch === last.epoch && seq <= last.seq));
    const begun = type === "SNAPSHOT" ? this.#begun : null;
    if (repeated && isSeen && (begun === null || begun.has(subject))) return false;
    begun?.add(subject);
    if (!isSeen) this.#brought.set(subject, { history, epoch, seq });
    return true;
  }

  /**
   * Take messages in; true when the subscription is to be held.
   *
   * @param {Message[]} messages
   */
  put(messages) {
    if (this.#callback) {
      for (const message of messages) this.#call(this.#callback, message);
      return false;
    }
    for (const message of messages) this.#give(message);
    if (this.#held || this.#waiting < this.#bufferMessages) return false;
    this.#held = true;
    return true;
  }

  /** Note that nothing is held for this subscription any more. */
  released() {
    this.#held = false;
  }

  /**
   * Throw this where the next message would come.
   *
   * @param {Error} error
   */
  fail(error) {
    if (!this.#callback) this.#give(error);
  }

  /** Note that no more comes: the client was closed. */
  close() {
    this.#closed = true;
    for (const { resolve } of this.#takers) resolve({ value: undefined, done: true });
    this.#takers = [];
  }

  /**
   * Note that the server has handled this subject.
   *
   * @param {string} subject
   */
  confirm(subject) {
    this.#unconfirmed.delete(subject);
  }

  /**
   * Note that the subject is not subscribed.
   *
   * @param {string} subject
   * @param {string} reason
   */
  refuse(subject, reason) {
    this.refusal = new SubscribeError([subject], reason);
    this.fail(this.refusal);
    this.drop(subject);
  }

  /**
   * Note that the subject is no part of this any more; without any the iteration ends.
   *
   * @param {string} subject
   */
  drop(subject) {
    this.subjects = this.subjects.filter((one) => one !== subject);
    this.confirm(subject);
    if (!this.subjects.length) this.close();
  }

  get #waiting() {
    return this.#queue.length - this.#taken;
  }

  /** @param {Message | Error} item */
  #give(item) {
    const taker = this.#takers.shift();
    if (taker === undefined) this.#queue.push(item);
    else if (item instanceof Error) taker.reject(item);
    else taker.resolve({ value: item, done: false });
  }

  /**
   * @param {(message: Message) => void} callback
   * @param {Message} message
   */
  #call(callback, message) {
    try {
      callback(message);
    } catch (error) {
      // An error of the application's is shown as any other of its errors, and stops nobody else.
      queueMicrotask(() => {
        throw error;
      });
    }
  }

  #makeRoom() {
    if (this.#held && this.#waiting * 2 <= this.#bufferMessages) {
      this.#client.release(this);
    }
  }
}
