/**
 * Finds out when a command was taken: a subscription, and which one an error is about.
 *
 * A ping goes out right after each `subscribe`; commands are answered in order, so its pong says
 * that the answers to the subscription have come before it.
 */

/** The subscribe commands of one connection whose pong has not come yet. */
export class Fences {
  #count = 0;
  /** @type {Map<string, Set<string>>} */
  #waiting = new Map();
  /** By subject, the last command whose answer is to come. @type {Map<string, string>} */
  #newest = new Map();
  /** @type {Set<string>} */
  #marks = new Set();

  /**
   * Return the command with an id, and the ping that is to follow it.
   *
   * @param {Record<string, any>} command
   */
  put(command) {
    this.#count += 1;
    const name = `s${this.#count}`;
    this.#waiting.set(name, new Set(command.subjects));
    for (const subject of command.subjects) this.#newest.set(subject, name);
    return [
      { ...command, id: name },
      { op: "ping", t: name },
    ];
  }

  /**
   * Return the subjects of the command with this id; none when it is no subscription.
   *
   * @param {unknown} id
   */
  subjects(id) {
    return typeof id === "string" ? [...(this.#waiting.get(id) ?? [])] : [];
  }

  /**
   * Return whether a refusal is about the newest subscription to a subject.
   *
   * `id` is that of the refusal; one without it is about none of those that wait. What is refused is
   * not confirmed by the pong.
   *
   * @param {string} subject
   * @param {unknown} id
   */
  refused(subject, id) {
    if (typeof id === "string") this.#waiting.get(id)?.delete(subject);
    const newest = this.#newest.get(subject);
    this.allowed(subject, id);
    return newest === undefined || newest === id;
  }

  /**
   * Note that the server allows a subscription: what ends it from now on comes unasked.
   *
   * @param {string} subject
   * @param {unknown} id
   */
  allowed(subject, id) {
    if (id !== undefined && this.#newest.get(subject) === id) this.#newest.delete(subject);
  }

  /**
   * Return a ping whose pong says that what went before it has been taken.
   *
   * With `caughtUp` also that subscriptions have brought all that comes before live messages.
   *
   * @param {number} mark
   * @param {{caughtUp?: boolean}} [options]
   */
  marked(mark, { caughtUp = false } = {}) {
    const ping = { op: "ping", t: `m${mark}` };
    this.#marks.add(ping.t);
    return caughtUp ? { ...ping, caught_up: true } : ping;
  }

  /**
   * Return the mark that a pong is about.
   *
   * @param {unknown} t
   */
  mark(t) {
    return typeof t === "string" && this.#marks.delete(t) ? Number(t.slice(1)) : undefined;
  }

  /**
   * Return the subjects whose subscription is in place with this pong.
   *
   * @param {unknown} t
   */
  passed(t) {
    const subjects = this.subjects(t);
    this.#waiting.delete(/** @type {string} */ (t));
    for (const subject of subjects) this.allowed(subject, t);
    return subjects;
  }
}
