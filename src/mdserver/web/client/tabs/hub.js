/**
 * The middle of a connection that several tabs share: what each tab wants, and who gets what comes.
 *
 * It stands over one `ClientCore` and its `SharedSubscriptions`, which subscribe a subject once for
 * all tabs. A tab says what a client would say to its core (`said`), and gets outputs like those of a
 * core (docs/javascript.md, "Tabs that share a connection"). No page, worker or clock is needed here.
 *
 * What a tab asks for is its own affair. A tab that pauses, disconnects, is frozen or too slow gets
 * nothing for a while; what comes meanwhile waits here, up to a bound. Beyond the bound it is dropped,
 * the subscription begins again once the tab takes messages, and the tab is told of the loss.
 */

import { parseInterest, segmentsOf } from "../core/subjects.js";
import { SharedSubscriptions } from "../sharing.js";
import { Subscription } from "../subscription.js";

/**
 * @typedef {import("../core/machine.js").ClientCore} ClientCore
 * @typedef {import("../core/machine.js").Output} Output
 * @typedef {import("../message.js").Message} Message
 * @typedef {{phase: string, failure: string, outputs: any[]}} Told
 * @typedef {Record<string, any> & {op: string}} Said
 * @typedef {{id: number, subjects: string[], history: number, conflationMs: number, bufferMessages: number}} Wanted
 */

/** Messages that are on their way to a tab; a frozen one takes none, and they wait in the browser. */
export const FLYING_MESSAGES_MAX = 10_000;
/** Characters or bytes of these messages; what the server sends at once may come on top. */
export const FLYING_BYTES_MAX = 16 * 1024 * 1024;
/** Characters or bytes of messages that wait for one subscription of a tab. */
export const WAITING_BYTES_MAX = 16 * 1024 * 1024;
/** When another tab is asked for a token after one that was asked brought none. */
export const TOKEN_PATIENCE_MS = 5000;
const RESULTS = new Set([
  "PUBLISH_OK",
  "PUBLISH_FAILED",
  "PUBLISH_DENIED",
  "MESSAGE_SIZE_LIMIT_EXCEEDED",
]);
const LOST = "messages were dropped, for this tab took none for too long";

/** A subscription of a tab: messages go to the tab, or wait until it takes them. */
class TabSubscription extends Subscription {
  id;
  history;
  conflationMs;
  isHeld = false;
  /** Whether messages were dropped since the tab took some last. */
  isLost = false;
  /** How many messages wait here at most. */
  messagesMax;
  #tab;
  /** In which history the messages that come are numbered. */
  #history = "";
  /** @type {{history: string, messages: Message[], bytes: number}[]} */
  #waiting = [];
  #waitingMessages = 0;
  #waitingBytes = 0;
  /** @type {(import("../core/subjects.js").Pattern | null)[]} */
  #patterns;

  /**
   * @param {Tab} tab
   * @param {Wanted} wanted
   */
  constructor(tab, wanted) {
    // Nothing asks this one to leave or to wait: that is the business of the one in the tab.
    super(/** @type {any} */ (null), wanted.subjects, wanted.bufferMessages, undefined);
    this.id = wanted.id;
    this.history = wanted.history;
    this.conflationMs = wanted.conflationMs;
    this.#tab = tab;
    this.messagesMax = wanted.bufferMessages;
    this.#patterns = wanted.subjects.map(parseInterest);
  }

  /** @param {string} subject */
  covers(subject) {
    if (this.subjects.includes(subject)) return true;
    const segments = segmentsOf(subject);
    return this.#patterns.some((pattern) => pattern?.matches(segments));
  }

  /** @type {Subscription["wants"]} */
  wants(event, history, repeated) {
    this.#history = history;
    return !this.isLost && super.wants(event, history, repeated);
  }

  /** @type {Subscription["put"]} */
  put(messages) {
    let bytes = 0;
    for (const message of messages) bytes += sizeOf(message);
    this.#waiting.push({ history: this.#history, messages, bytes });
    this.#waitingMessages += messages.length;
    this.#waitingBytes += bytes;
    if (this.flush()) return false;
    if (this.#waitingMessages > this.messagesMax || this.#waitingBytes > WAITING_BYTES_MAX) {
      this.isLost = true;
      this.#forget();
    }
    return false;
  }

  /** Hand over what waits; true when nothing is left and the tab takes more. */
  flush() {
    while (!this.isHeld && this.#tab.takes) {
      const batch = this.#waiting.shift();
      if (!batch) return true;
      const { history, messages, bytes } = batch;
      this.#waitingMessages -= messages.length;
      this.#waitingBytes -= bytes;
      this.#tab.deliver(this.id, history, messages, bytes);
    }
    return false;
  }

  #forget() {
    this.#waiting = [];
    this.#waitingMessages = this.#waitingBytes = 0;
  }

  /** @param {string} subject */
  confirm(subject) {
    this.#tab.tell({ kind: "subscribed", subjects: [[this.id, subject]] });
  }

  /**
   * @param {string} subject
   * @param {string} reason
   */
  refuse(subject, reason) {
    this.#tab.tell({ kind: "refused", subjects: [[this.id, subject]], reason });
    this.drop(subject);
  }

  /** @param {string} subject */
  drop(subject) {
    const self = /** @type {Subscription} */ (this);
    self.subjects = self.subjects.filter((one) => one !== subject);
  }
}

/** One tab: what it wants, and what it is told. */
export class Tab {
  /** @type {Map<number, TabSubscription>} */
  subscriptions = new Map();
  isConnected = false;
  isPaused = false;
  /** Whether it can get a token. */
  hasTokens = false;
  #post;
  #flyingMessages = 0;
  #flyingBytes = 0;

  /** @param {(output: any) => void} post */
  constructor(post) {
    this.#post = post;
  }

  /** Whether messages are handed over. */
  get takes() {
    return this.isConnected && !this.isPaused && !this.isFull;
  }

  /** Whether so much is on its way that it seems to take none. */
  get isFull() {
    return this.#flyingMessages >= FLYING_MESSAGES_MAX || this.#flyingBytes >= FLYING_BYTES_MAX;
  }

  /**
   * @param {number} id
   * @param {string} history
   * @param {Message[]} messages
   * @param {number} bytes that these have; the tab says them when it has taken the messages
   */
  deliver(id, history, messages, bytes) {
    this.#flyingMessages += messages.length;
    this.#flyingBytes += bytes;
    this.#post({ kind: "deliver", id, history, messages, bytes });
  }

  /**
   * @param {number} count
   * @param {number} bytes
   */
  taken(count, bytes) {
    this.#flyingMessages -= count;
    this.#flyingBytes -= bytes;
  }

  /** @param {any} output */
  tell(output) {
    this.#post(output);
  }

  /** @param {string} subject */
  covers(subject) {
    return [...this.subscriptions.values()].some((one) => one.covers(subject));
  }
}

/** The core, the tabs, and what goes from one to the other. */
export class Hub {
  /** @type {Set<Tab>} */
  tabs = new Set();
  #core;
  #perform;
  #now;
  #later;
  #shared;
  /** @type {Map<number, {tab: Tab, id: number}>} */
  #publications = new Map();
  /** What is published once there is room. @type {{tab: Tab, id: number, command: any}[]} */
  #publishing = [];
  /** @type {Tab | null} */
  #publisher = null;
  /** @type {{tab: Tab, mark: number, asked: number, since: number}[]} */
  #questions = [];
  /** @type {Tab | null} */
  #asked = null;
  /** Counts the tokens that were wanted or came, to tell a late timer. */
  #tokens = 0;
  /** @type {string | undefined} */
  #token;

  /**
   * @param {ClientCore} core
   * @param {(outputs: Output[]) => void} perform carries out what the core says
   * @param {() => number} now gives the time in milliseconds
   * @param {(delayMs: number, call: () => void) => void} later calls once that time has passed
   */
  constructor(core, perform, now, later) {
    this.#core = core;
    this.#perform = perform;
    this.#now = now;
    this.#later = later;
    this.#shared = new SharedSubscriptions(core, perform);
  }

  /** What a tab has to know of the connection with all that it is told. */
  get standing() {
    const { phase, failure } = this.#core;
    return { phase, failure };
  }

  // What tabs say

  /**
   * Take a tab in; it then says what it wants.
   *
   * @param {(output: any) => void} post
   */
  attach(post) {
    const tab = new Tab(post);
    this.tabs.add(tab);
    return tab;
  }

  /**
   * Let a tab go, and end its subscriptions. What it published goes on.
   *
   * @param {Tab} tab
   */
  detach(tab) {
    if (!this.tabs.delete(tab)) return;
    for (const subscription of [...tab.subscriptions.values()]) this.#remove(tab, subscription);
    this.#questions = this.#questions.filter((question) => question.tab !== tab);
    if (this.#asked === tab) this.#askAnother();
    this.#settle();
    this.#look();
  }

  /**
   * Do what a tab says.
   *
   * @param {Tab} tab
   * @param {Said} said
   */
  said(tab, said) {
    if (!this.tabs.has(tab)) return;
    switch (said.op) {
      case "hello":
        tab.hasTokens = said.hasTokens;
        if (said.token) this.#setToken(said.token);
        break;
      case "connect":
        this.#connect(tab);
        break;
      case "disconnect":
        tab.isConnected = false;
        this.#settle();
        break;
      case "pause":
      case "resume":
        tab.isPaused = said.op === "pause";
        this.#settle();
        break;
      case "servers":
        this.#core.setServers(said.servers);
        break;
      case "token":
        this.#setToken(said.token);
        break;
      case "subscribe":
        this.#subscribe(tab, /** @type {any} */ (said));
        break;
      case "unsubscribe":
        this.#unsubscribe(tab, said);
        break;
      case "hold":
      case "release": {
        const subscription = tab.subscriptions.get(said.id);
        if (subscription) subscription.isHeld = said.op === "hold";
        break;
      }
      case "taken":
        tab.taken(said.count, said.bytes);
        break;
      case "caughtUp":
        this.#questions.push({ tab, mark: said.mark, asked: 0, since: 0 });
        break;
      case "publish":
        this.#publishing.push({ tab, id: said.id, command: said.command });
        this.#publish();
        break;
    }
    this.#flush(tab);
    this.#look();
  }

  /** @param {Tab} tab */
  #connect(tab) {
    const wasConnected = tab.isConnected;
    tab.isConnected = true;
    this.#settle();
    if (this.#core.phase === "up") {
      if (!wasConnected) tab.tell({ kind: "connected" });
    } else {
      this.#perform(this.#core.connect(this.#now()));
    }
  }

  /** Stay away when no tab wants a connection, and be silent when none wants messages. */
  #settle() {
    const connected = [...this.tabs].filter((tab) => tab.isConnected);
    if (!connected.length && this.#core.phase !== "idle") {
      this.#perform(this.#core.disconnect());
      return;
    }
    const isPaused = connected.length > 0 && connected.every((tab) => tab.isPaused);
    if (isPaused === this.#core.paused) return;
    if (isPaused) {
      this.#perform(this.#core.pause());
      this.#shared.interrupt();
    } else {
      this.#perform(this.#core.resume());
      this.#shared.goOn();
    }
  }

  /** @param {string} token */
  #setToken(token) {
    this.#tokens += 1;
    this.#asked = null;
    if (token === this.#token && this.#core.phase === "up") return;
    this.#token = token;
    this.#perform(this.#core.setToken(token, this.#now()));
  }

  /** Choose the tab to ask for a token, and ask another one when that one brings none in time. */
  #chooseForToken() {
    const able = [...this.tabs].filter((tab) => tab.hasTokens);
    const after = this.#asked ? able.indexOf(this.#asked) + 1 : 0;
    this.#asked = able[after] ?? able[0] ?? null;
    this.#tokens += 1;
    const wanted = this.#tokens;
    if (!this.#asked) return;
    this.#later(TOKEN_PATIENCE_MS, () => {
      if (this.#tokens === wanted) this.#askAnother();
    });
  }

  #askAnother() {
    this.#chooseForToken();
    const notice = { status: "TOKEN_TO_EXPIRE", info: "no other tab brought a token" };
    this.#asked?.tell({ kind: "notify", notice, asks: true });
  }

  /**
   * @param {Tab} tab
   * @param {Wanted} wanted
   */
  #subscribe(tab, wanted) {
    const subscription = new TabSubscription(tab, wanted);
    tab.subscriptions.set(wanted.id, subscription);
    this.#shared.add(subscription, wanted.history, wanted.conflationMs);
  }

  /**
   * @param {Tab} tab
   * @param {Said} said
   */
  #unsubscribe(tab, { id, subjects }) {
    const subscription = tab.subscriptions.get(id);
    if (!subscription) return;
    this.#shared.remove(subscription, subjects);
    if (!subscription.subjects.length) tab.subscriptions.delete(id);
  }

  /**
   * @param {Tab} tab
   * @param {TabSubscription} subscription
   */
  #remove(tab, subscription) {
    tab.subscriptions.delete(subscription.id);
    this.#shared.remove(subscription, [...subscription.subjects]);
  }

  /**
   * Hand over what waits for a tab; what had to be dropped begins again.
   *
   * @param {Tab} tab
   */
  #flush(tab) {
    for (const subscription of [...tab.subscriptions.values()]) {
      if (!subscription.flush() || !subscription.isLost) continue;
      for (const subject of subscription.subjects) {
        const notice = { status: "DATA_RESYNC", subject, info: LOST };
        tab.tell({ kind: "notify", notice });
      }
      const { id, subjects, conflationMs } = subscription;
      this.#remove(tab, subscription);
      const bufferMessages = subscription.messagesMax;
      this.#subscribe(tab, { id, subjects, history: 0, conflationMs, bufferMessages });
    }
  }

  #publish() {
    while (
      this.#publishing.length &&
      this.#core.publicationsWaiting < this.#core.settings.publicationsMax
    ) {
      const { tab, id, command } = /** @type {any} */ (this.#publishing.shift());
      const { publication, outputs } = this.#core.publish(command);
      this.#publications.set(publication, { tab, id });
      this.#perform(outputs);
    }
  }

  // What the core says

  /**
   * Take what the driver has for the application.
   *
   * @param {Output} output
   */
  take(output) {
    switch (output.kind) {
      case "deliver":
        this.#shared.deliver(output);
        return;
      case "subscribed":
        this.#shared.subscribed(output.subjects);
        break;
      case "refused":
        this.#shared.refused(output.subjects, output.reason);
        break;
      case "reported":
        this.#shared.reported(output.mark);
        break;
      case "connected":
        // After what the others missed was asked for.
        if (this.#shared.connected()) queueMicrotask(() => this.#shared.goOn());
        this.#tellAll({ kind: "connected" });
        break;
      case "published":
        this.#published(output.result);
        break;
      case "notify":
        this.#notified(output.notice);
        break;
      case "stopped":
        this.#tellAll(output);
        break;
    }
    this.#look();
  }

  /** @param {import("../core/publications.js").PublishResult} result */
  #published(result) {
    const { tab, id } = this.#publications.get(result.publication) ?? { tab: null, id: 0 };
    this.#publications.delete(result.publication);
    tab?.tell({ kind: "published", result: { ...result, publication: id } });
    this.#publish();
    // The notice of this result comes next, also if what is published above had its own at once.
    this.#publisher = tab;
  }

  /** @param {import("../core/machine.js").Notice} notice */
  #notified(notice) {
    if (RESULTS.has(notice.status)) {
      this.#publisher?.tell({ kind: "notify", notice }); // comes right after the result
      return;
    }
    if (notice.status === "TOKEN_TO_EXPIRE" || this.#core.phase === "needs token") {
      this.#chooseForToken();
    }
    const { subject } = notice;
    for (const tab of this.tabs) {
      if (!(subject === undefined ? tab.isConnected : tab.covers(subject))) continue;
      tab.tell({ kind: "notify", notice, asks: tab === this.#asked });
    }
  }

  /** @param {any} output */
  #tellAll(output) {
    for (const tab of this.tabs) if (tab.isConnected) tab.tell(output);
  }

  /** Answer tabs that ask whether their subscriptions have caught up. */
  #look() {
    const shared = this.#shared;
    this.#questions = this.#questions.filter((question) => {
      if (question.asked && shared.interruptions !== question.since) question.asked = 0;
      if (!question.asked) {
        if (this.#core.phase !== "up") return true;
        question.asked = shared.askCaughtUp();
        question.since = shared.interruptions;
        return true;
      }
      if (!shared.answered(question.asked) || question.tab.isFull) return true;
      question.tab.tell({ kind: "reported", mark: question.mark });
      return false;
    });
  }
}

/**
 * Return the characters or bytes of what a message carries.
 *
 * @param {Message} message
 */
function sizeOf({ content, fields }) {
  let size = content.length;
  for (const name in fields) size += name.length + fields[name].length;
  return size;
}
