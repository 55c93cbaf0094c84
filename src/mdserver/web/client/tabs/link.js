/**
 * A tab's end of a shared connection: what stands there for core, driver and subscriptions.
 *
 * `Client` calls it as it calls these, and it passes on to the hub what is asked for. What the hub
 * answers reaches the client as outputs of a core. When the hub is gone (its worker was ended), the
 * tab finds another one and says again what it wants.
 */

import { parseServer } from "../core/servers.js";
import { parseInterest } from "../core/subjects.js";
import { BUFFER_MESSAGES, PUBLICATIONS_MAX } from "../core/limits.js";

/**
 * @typedef {import("../subscription.js").Subscription} Subscription
 * @typedef {import("../message.js").Message} Message
 * @typedef {import("./hub.js").Told} Told
 * @typedef {{history: number, conflationMs: number, seen: Map<string, Seen>, id: number, isHeld: boolean, isSaid: boolean}} Wanted
 * @typedef {{history: string, epoch: number, seq: number}} Seen
 */

const CUT_OFF = "the tab was cut off from the shared connection: some messages may be lost";

/** One tab's view of the hub. */
export class Link {
  /** Nothing can have been missed that the hub would not tell of. */
  interruptions = 0;
  failure = "nothing answered yet";
  settings = { publicationsMax: PUBLICATIONS_MAX };
  /** Numbers belong to the connection, and so to all tabs. */
  numbering = undefined;
  subscriptions = { subjects: () => this.#subjects() };
  #servers;
  #settings;
  #say;
  #take;
  #bufferMessages;
  #isConnected = false;
  #isPaused = false;
  #hubPhase = "idle";
  /** Whether no worker is there; what is asked for meanwhile is said to the next one. */
  #isCutOff = false;
  /** Whether the application was told SERVER_DOWN last. */
  #isDown = false;
  /** @type {Map<Subscription, Wanted>} */
  #wanted = new Map();
  /** @type {Map<number, Subscription>} */
  #byId = new Map();
  #ids = 0;
  /** @type {Set<number>} */
  #publications = new Set();
  /** Those that were made while the tab was cut off. @type {Map<number, Record<string, any>>} */
  #unsaid = new Map();
  /** @type {Set<number>} */
  #questions = new Set();

  /**
   * @param {string[]} servers
   * @param {{encryption: boolean, token?: string}} settings
   * @param {{hasTokens: boolean, bufferMessages?: number}} tab
   * @param {(said: import("./hub.js").Said) => void} say reaches the hub
   * @param {(output: any) => void} take gets what is for the client
   * @throws {import("../errors.js").ArgumentError}
   */
  constructor(servers, settings, tab, say, take) {
    this.#settings = settings;
    this.#servers = servers;
    this.#say = say;
    this.#take = take;
    this.#bufferMessages = tab.bufferMessages ?? BUFFER_MESSAGES;
    this.#check(servers);
    this.hasTokens = tab.hasTokens;
  }

  /** @param {string[]} servers */
  #check(servers) {
    for (const server of servers) parseServer(server, this.#settings.encryption);
  }

  /** Introduce the tab to the hub. */
  hello() {
    this.#say({ op: "hello", hasTokens: this.hasTokens, token: this.#settings.token });
  }

  // For the client: what a core has

  get phase() {
    return this.#isConnected ? this.#hubPhase : "idle";
  }

  get publicationsWaiting() {
    return this.#publications.size;
  }

  connect() {
    this.#isConnected = true;
    this.#say({ op: "connect" });
    return [];
  }

  disconnect() {
    this.#isConnected = false;
    this.#say({ op: "disconnect" });
    return this.giveUp("the client disconnected");
  }

  /** @param {string} reason */
  giveUp(reason) {
    const given = [...this.#publications];
    this.#publications.clear();
    this.#unsaid.clear();
    return given.map((publication) => ({
      kind: "published",
      result: { publication, status: "PUBLISH_FAILED", reason, certain: false, epoch: 0, seq: 0 },
    }));
  }

  /** @param {string[]} servers */
  setServers(servers) {
    this.#check(servers);
    this.#servers = servers;
    this.#say({ op: "servers", servers });
  }

  /** @param {string} token */
  setToken(token) {
    this.#settings.token = token;
    this.#say({ op: "token", token });
    return [];
  }

  pause() {
    this.#isPaused = true;
    this.#say({ op: "pause" });
    return [];
  }

  resume() {
    this.#isPaused = false;
    this.#say({ op: "resume" });
    return [];
  }

  /** @param {Record<string, any>} command */
  publish(command) {
    const publication = ++this.#ids;
    this.#publications.add(publication);
    if (this.#isCutOff) this.#unsaid.set(publication, command);
    else this.#say({ op: "publish", id: publication, command });
    return { publication, outputs: [] };
  }

  #subjects() {
    return [...new Set([...this.#wanted.keys()].flatMap((subscription) => subscription.subjects))];
  }

  // What a driver has

  /** @param {any[]} outputs */
  perform(outputs) {
    for (const output of outputs) this.#take(output);
  }

  // What the subscriptions of a client have

  all() {
    return [...this.#wanted.keys()];
  }

  /**
   * @param {Subscription} subscription
   * @param {number} history
   * @param {number} conflationMs
   * @throws {import("../errors.js").InvalidSubjectError}
   */
  add(subscription, history, conflationMs) {
    for (const subject of subscription.subjects) parseInterest(subject);
    const id = ++this.#ids;
    const isSaid = !this.#isCutOff;
    const wanted = { id, history, conflationMs, isHeld: false, isSaid, seen: new Map() };
    this.#wanted.set(subscription, wanted);
    this.#byId.set(id, subscription);
    this.#subscribe(subscription, history);
  }

  /**
   * @param {Subscription} subscription
   * @param {number} history
   */
  #subscribe(subscription, history) {
    const { id, conflationMs, isHeld } = /** @type {Wanted} */ (this.#wanted.get(subscription));
    const { subjects } = subscription;
    const bufferMessages = this.#bufferMessages;
    this.#say({ op: "subscribe", id, subjects, history, conflationMs, bufferMessages });
    if (isHeld) this.#say({ op: "hold", id });
  }

  /**
   * @param {Subscription} subscription
   * @param {string[]} subjects
   */
  remove(subscription, subjects) {
    const id = this.#wanted.get(subscription)?.id;
    if (id !== undefined) this.#say({ op: "unsubscribe", id, subjects });
    for (const subject of subjects) this.#drop(subscription, subject);
  }

  /**
   * @param {Subscription} subscription
   * @param {string} subject
   */
  #drop(subscription, subject) {
    subscription.drop(subject);
    if (!subscription.subjects.length) this.#forget(subscription);
  }

  /** @param {Subscription} subscription */
  #forget(subscription) {
    this.#byId.delete(this.#wanted.get(subscription)?.id ?? 0);
    this.#wanted.delete(subscription);
  }

  /** @param {Subscription} subscription */
  release(subscription) {
    this.#hold(subscription, false);
  }

  /** @param {Subscription} subscription */
  held(subscription) {
    return this.#wanted.get(subscription)?.isHeld ?? false;
  }

  /**
   * @param {Subscription} subscription
   * @param {boolean} isHeld
   */
  #hold(subscription, isHeld) {
    const wanted = this.#wanted.get(subscription);
    if (!wanted || wanted.isHeld === isHeld) return;
    wanted.isHeld = isHeld;
    this.#say({ op: isHeld ? "hold" : "release", id: wanted.id });
  }

  askCaughtUp() {
    const mark = ++this.#ids;
    this.#questions.add(mark);
    this.#say({ op: "caughtUp", mark });
    return mark;
  }

  /** @param {number} mark */
  answered(mark) {
    return !this.#questions.has(mark);
  }

  interrupt() {}

  goOn() {}

  connected() {
    return false;
  }

  /** @param {[number, string][]} pairs */
  subscribed(pairs) {
    for (const [id, subject] of pairs) this.#byId.get(id)?.confirm(subject);
  }

  /**
   * @param {[number, string][]} pairs
   * @param {string} reason
   */
  refused(pairs, reason) {
    for (const [id, subject] of pairs) {
      const subscription = this.#byId.get(id);
      if (!subscription) continue;
      subscription.refuse(subject, reason);
      if (!subscription.subjects.length) this.#forget(subscription);
    }
  }

  /** @param {number} mark */
  reported(mark) {
    this.#questions.delete(mark);
  }

  /** @param {{id: number, history: string, messages: Message[], bytes: number}} output */
  deliver({ id, history, messages, bytes }) {
    const subscription = this.#byId.get(id);
    if (subscription) {
      const { seen } = /** @type {Wanted} */ (this.#wanted.get(subscription));
      const news = messages.filter((message) => isNew(seen, history, message));
      if (subscription.put(news)) this.#hold(subscription, true);
    }
    this.#say({ op: "taken", count: messages.length, bytes });
  }

  // What the hub tells

  /** @param {Told} told */
  told({ phase, failure, outputs }) {
    this.#hubPhase = phase;
    this.failure = failure;
    for (const output of outputs) {
      if (output.kind === "published" && !this.#publications.delete(output.result.publication)) {
        continue; // it was given up here
      }
      if (output.kind === "notify") this.#note(output.notice);
      this.#take(output);
    }
    // A hub whose connection stands already tells nobody that it does.
    if (this.#isDown && this.phase === "up") this.#notify("SERVER_UP", "the shared connection");
  }

  /** @param {import("../core/machine.js").Notice} notice */
  #note({ status }) {
    if (status === "SERVER_DOWN" || status === "SERVER_UP") this.#isDown = status === "SERVER_DOWN";
  }

  /**
   * @param {string} status
   * @param {string} info
   */
  #notify(status, info) {
    const notice = { status, info };
    this.#note(notice);
    this.#take({ kind: "notify", notice, asks: false });
  }

  /**
   * Note that the hub is gone, and that another one is looked for.
   *
   * Nobody knows what became of open publications: they fail as such.
   */
  cutOff() {
    if (this.#isCutOff) return;
    this.#isCutOff = true;
    this.#hubPhase = "waiting";
    this.failure = CUT_OFF;
    this.perform(this.giveUp(CUT_OFF));
    if (this.#isConnected && !this.#isDown) this.#notify("SERVER_DOWN", CUT_OFF);
  }

  /** Say all that is wanted to another hub, after `cutOff`. */
  begin() {
    this.#isCutOff = false;
    this.#hubPhase = "opening";
    this.hello();
    this.#say({ op: "servers", servers: this.#servers });
    if (this.#isPaused) this.#say({ op: "pause" });
    for (const [subscription, wanted] of [...this.#wanted]) {
      for (const subject of wanted.isSaid ? subscription.subjects : []) {
        const notice = { status: "DATA_RESYNC", subject, info: CUT_OFF };
        this.#take({ kind: "notify", notice, asks: false });
      }
      this.#subscribe(subscription, wanted.isSaid ? 0 : wanted.history);
      wanted.isSaid = true;
    }
    for (const mark of this.#questions) this.#say({ op: "caughtUp", mark });
    if (this.#isConnected) this.#say({ op: "connect" });
    for (const [id, command] of this.#unsaid) this.#say({ op: "publish", id, command });
    this.#unsaid.clear();
  }
}

/**
 * Return whether a subscription gets this for the first time; one that began again does not.
 *
 * @param {Map<string, Seen>} seen
 * @param {string} history
 * @param {Message} message
 */
function isNew(seen, history, { subject, position }) {
  if (!position) return true;
  const { epoch, seq } = position;
  const last = seen.get(subject);
  if (last && last.history === history) {
    if (epoch < last.epoch || (epoch === last.epoch && seq <= last.seq)) return false;
  }
  seen.set(subject, { history, epoch, seq });
  return true;
}
