/**
 * The subscriptions of a client, which may overlap and share what the server sends.
 *
 * The server brings a session one copy of a message, however many of its subscriptions match. So a
 * subject is subscribed once for all that name it, and each message goes to every subscription that
 * it matches. One that begins beside others joins them: it asks for what they have seen already, and
 * only it gets that again. Until the server says that it has brought all of that a join is
 * unfinished, and begins again after whatever came between.
 */

import { messageOf } from "./message.js";
import { Routes } from "./routes.js";

/**
 * @typedef {import("./core/machine.js").ClientCore} ClientCore
 * @typedef {import("./core/machine.js").Output} Output
 * @typedef {import("./message.js").Message} Message
 * @typedef {import("./subscription.js").Subscription} Subscription
 */

/** All subscriptions over one core. */
export class SharedSubscriptions {
  /** Counts what may keep something back for a while: a connection, a pause, a lack of room. */
  interruptions = 0;
  #core;
  #perform;
  #routes = new Routes();
  /** @type {Map<Subscription, number>} */
  #conflations = new Map();
  #marks = 0;
  /** By the mark that says from when on it takes what comes. @type {Map<number, Subscription>} */
  #joining = new Map();
  /** Those whose joins are unfinished, with their history. @type {Map<Subscription, number>} */
  #histories = new Map();
  /** Those of them that have to begin again. @type {Set<Subscription>} */
  #interrupted = new Set();
  /**
   * The mark that says that these joins are finished, unless something comes between.
   *
   * @type {{mark: number, joins: Subscription[]} | null}
   */
  #finishing = null;
  /** @type {Set<number>} */
  #asked = new Set();

  /**
   * @param {ClientCore} core
   * @param {(outputs: Output[]) => void} perform carries out what the core says
   */
  constructor(core, perform) {
    this.#core = core;
    this.#perform = perform;
  }

  /** Return each subscription once. */
  all() {
    return this.#routes.all();
  }

  /**
   * Begin a subscription.
   *
   * @param {Subscription} subscription
   * @param {number} history
   * @param {number} conflationMs
   * @throws {InvalidSubjectError} before anything is changed
   */
  add(subscription, history, conflationMs) {
    const { subjects } = subscription;
    const isAlone = !this.#routes.overlapping(subjects).length;
    this.#routes.add(subscription);
    this.#conflations.set(subscription, conflationMs);
    if (isAlone) {
      this.#perform(this.#core.subscribe(subjects, { history, conflationMs }));
    } else {
      subscription.join(history);
      this.#histories.set(subscription, history);
      this.#join(subscription);
    }
    this.#hold(this.#routes.holdAgain());
  }

  /**
   * Subscribe beside what overlaps: it is asked for again, as far as this one needs it.
   *
   * That is the case beside a pattern, which brings nothing of more exact subscriptions. The mark
   * comes back when the server has got so far; what comes from then on is for the new subscription
   * as well. What a command brings may take the place of what an earlier one was to bring, so
   * questions that were asked before it prove nothing.
   *
   * @param {Subscription} subscription
   */
  #join(subscription) {
    this.interruptions += 1;
    this.#finishing = null;
    this.#marks += 1;
    this.#joining.set(this.#marks, subscription);
    this.#perform(this.#core.mark(this.#marks));
    const history = this.#histories.get(subscription);
    const patterns = subscription.subjects.filter((one) => one.includes("*"));
    const again = new Set([...this.#routes.overlapping(patterns), ...subscription.subjects]);
    for (const subject of again) {
      const sharing = this.#routes.sharing(subject);
      const conflationMs = sharing.reduce(
        (shortest, one) => Math.min(shortest, this.#conflations.get(one) ?? 0),
        Infinity,
      );
      this.#perform(this.#core.subscribe([subject], { history, conflationMs, replay: true }));
    }
    if (!this.#isOpenTo(subscription)) this.#interrupted.add(subscription);
  }

  /**
   * Return whether what the server brings reaches a subscription.
   *
   * @param {Subscription} subscription
   */
  #isOpenTo(subscription) {
    return this.#core.receiving && !this.held(subscription);
  }

  /** Note that something that is on its way may not reach its subscription. */
  interrupt() {
    this.interruptions += 1;
    for (const subscription of this.#histories.keys()) this.#interrupted.add(subscription);
    this.#finishing = null;
  }

  /** Begin the joins again that were interrupted, as far as nothing keeps them back. */
  goOn() {
    for (const subscription of [...this.#interrupted]) {
      if (!this.#isOpenTo(subscription)) continue;
      this.#interrupted.delete(subscription);
      this.#join(subscription);
    }
  }

  /** Ask when the joins under way are finished; one question at a time. */
  #finish() {
    const joins = [...this.#histories.keys()].filter(
      (one) => one.started && !this.#interrupted.has(one),
    );
    if (joins.length && this.#finishing === null) {
      this.#finishing = { mark: this.askCaughtUp(), joins };
    }
  }

  /**
   * End a subscription, wholly or for some of its subjects.
   *
   * @param {Subscription} subscription
   * @param {string[]} subjects
   */
  remove(subscription, subjects) {
    this.release(subscription);
    const gone = subjects.filter((subject) => this.#routes.remove(subject, subscription));
    this.#perform(this.#core.unsubscribe(gone));
    for (const subject of subjects) subscription.drop(subject);
    this.#forgetEnded(subscription);
    this.#joinWithout(gone);
  }

  /**
   * Begin the joins again that these subjects, which ended, were to bring messages for.
   *
   * @param {string[]} gone
   */
  #joinWithout(gone) {
    for (const subscription of this.#histories.size ? this.#routes.overlapped(gone) : []) {
      if (!this.#histories.has(subscription)) continue;
      this.#interrupted.add(subscription);
      this.#finishing = null;
    }
    this.goOn();
  }

  /** @param {Subscription} subscription */
  #forgetEnded(subscription) {
    if (subscription.subjects.length) return;
    this.#conflations.delete(subscription);
    this.#forgetJoin(subscription);
  }

  /** @param {Subscription} subscription */
  #forgetJoin(subscription) {
    this.#histories.delete(subscription);
    this.#interrupted.delete(subscription);
  }

  /** @param {string[]} subjects */
  #hold(subjects) {
    if (!subjects.length) return;
    this.#perform(this.#core.hold(subjects));
    this.interrupt();
  }

  /**
   * Go on with a subscription that has room again.
   *
   * @param {Subscription} subscription
   */
  release(subscription) {
    subscription.released();
    this.#perform(this.#core.release(this.#routes.release(subscription)));
    this.goOn();
  }

  // Whether a subscription has got what comes before its live messages

  /**
   * Return whether something of it is held, for a lack of room.
   *
   * @param {Subscription} subscription
   */
  held(subscription) {
    return this.#routes.held(subscription.subjects);
  }

  /**
   * Ask the server to say when it has brought that of all subscriptions; gives a mark.
   *
   * One question is under way, as a server takes few at once. The next one is put when it is
   * answered, and serves all who asked meanwhile: each is about all subscriptions.
   */
  askCaughtUp() {
    if (this.#asked.size < 2) {
      this.#asked.add(++this.#marks);
      if (this.#asked.size < 2) this.#ask();
    }
    return /** @type {number} */ ([...this.#asked].pop());
  }

  #ask() {
    for (const mark of this.#asked) this.#perform(this.#core.mark(mark, { caughtUp: true }));
  }

  /**
   * Return whether a question is answered, or was put on an earlier connection.
   *
   * @param {number} mark
   */
  answered(mark) {
    return !this.#asked.has(mark);
  }

  // What the core says

  /** Note a new connection; true when `goOn` is to follow. */
  connected() {
    this.interrupt();
    this.#joining.clear();
    this.#asked.clear();
    return this.#interrupted.size > 0;
  }

  /**
   * Confirm subjects to those that subscribed to them.
   *
   * @param {string[]} subjects
   */
  subscribed(subjects) {
    for (const subject of subjects) {
      for (const subscription of this.#routes.named(subject)) {
        if (subscription.started) subscription.confirm(subject);
      }
    }
  }

  /**
   * End what the server refuses.
   *
   * @param {string[]} subjects
   * @param {string} reason
   */
  refused(subjects, reason) {
    for (const subject of subjects) {
      for (const subscription of this.#routes.named(subject)) {
        this.#routes.remove(subject, subscription);
        subscription.refuse(subject, reason);
        this.#forgetEnded(subscription);
      }
    }
    this.#joinWithout(subjects);
  }

  /**
   * Note that the server has got as far as one of the marks.
   *
   * @param {number} mark
   */
  reported(mark) {
    const joined = this.#joining.get(mark);
    this.#joining.delete(mark);
    if (joined) joined.started = true;
    if (this.#asked.delete(mark)) this.#ask();
    if (this.#finishing?.mark === mark) {
      for (const subscription of this.#finishing.joins) {
        this.#forgetJoin(subscription);
        subscription.joined();
      }
      this.#finishing = null;
    }
    this.#finish();
  }

  /**
   * Hand messages to all subscriptions that they match; hold those that are full.
   *
   * @param {Extract<Output, {kind: "deliver"}>} output
   */
  deliver({ messages, repeated }) {
    /** @type {Map<Subscription, Message[]>} */
    const batches = new Map();
    const { history } = this.#core.positions;
    for (const event of messages) {
      let message;
      for (const subscription of this.#routes.takers(event.subject)) {
        if (!subscription.wants(event, history, repeated)) continue;
        message ??= messageOf(event);
        const batch = batches.get(subscription);
        if (batch) batch.push(message);
        else batches.set(subscription, [message]);
      }
    }
    for (const [subscription, batch] of batches) {
      if (subscription.put(batch)) this.#hold(this.#routes.hold(subscription));
    }
  }
}
