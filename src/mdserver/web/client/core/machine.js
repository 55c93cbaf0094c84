/**
 * `ClientCore`: one client's side of the protocol as a state machine, without I/O, clock or
 * randomness of its own.
 *
 * A driver tells it what happened (`opened`, `received`, `closed`, `due`) and what the application
 * wants (`connect`, `subscribe`, `publish`, ...), with the time in milliseconds where it matters,
 * and carries out the outputs that each call gives back, in order. The phases and what leads from
 * one to another are in `phases.js`. It behaves as `mdserver.client.core.machine` does, with the
 * parts that stand in modules of their own there (`connection`, `liveness`, `outputs`); recorded
 * conversations of that one are played with this one in the tests.
 *
 * A connection is an *attempt* with a number. Events of an earlier attempt are ignored, so that a
 * driver need not take care of what is still on its way when a connection is given up.
 */

import { InvalidSubjectError, ProtocolError } from "../errors.js";
import { Fences } from "./fences.js";
import {
  CLOSE_GOING_AWAY,
  CLOSE_KEEPALIVE_MISSED,
  CLOSE_MOVED,
  CLOSE_NORMAL,
  CLOSE_NO_QUORUM,
  CLOSE_SHUTTING_DOWN,
  CLOSE_SLOW_CONSUMER,
  CLOSE_TOKEN_EXPIRED,
  LATE_MS,
  MOVE_JITTER_MS,
  OPEN_TIMEOUT_MS,
  PONG_MS,
  PROTOCOL_VERSION,
  PUBLICATIONS_MAX,
  PUBLISH_RETRY_MS,
  SILENCE_MS,
} from "./limits.js";
import {
  TIMER_ATTEMPT,
  TIMER_LIVENESS,
  TIMER_MOVE,
  TIMER_OPENING,
  TIMER_PUBLISH,
  TRANSITIONS,
} from "./phases.js";
import { Positions } from "./positions.js";
import { Publications } from "./publications.js";
import { Returning } from "./returning.js";
import { RECONNECT_BROWSER, Schedule, uniform } from "./schedule.js";
import { ServerChoice, authority, parseServer } from "./servers.js";
import { Subscriptions } from "./subscriptions.js";

/**
 * @typedef {import("./servers.js").Server} Server
 * @typedef {import("./publications.js").PublishResult} PublishResult
 * @typedef {import("./publications.js").Numbering} Numbering
 * @typedef {import("./schedule.js").ReconnectSettings} ReconnectSettings
 * @typedef {import("../codec/events.js").Codec} Codec
 * @typedef {import("../codec/events.js").WireEvent} WireEvent
 * @typedef {import("../codec/events.js").MessageEvent} MessageEvent
 * @typedef {import("../codec/events.js").ConnectedEvent} ConnectedEvent
 * @typedef {import("../codec/events.js").StatusEvent} StatusEvent
 */

/**
 * One status for the application; its names are those of docs/clients.md.
 *
 * @typedef {object} Notice
 * @property {string} status
 * @property {string} [info]
 * @property {string} [subject]
 * @property {string} [closure]
 * @property {import("./positions.js").Position} [position]
 * @property {{from: import("./positions.js").Position, to: import("./positions.js").Position}} [missing]
 */

/**
 * What a client is told at its start.
 *
 * With a `publisher` publications are numbered and taken exactly once. It is a name, or with
 * `publisherKey` the identity that a server gave. Without, publications are repeated after a lost
 * connection, at least once.
 *
 * @typedef {object} ClientSettings
 * @property {string} client
 * @property {string} [publisher]
 * @property {string} [publisherKey]
 * @property {Numbering} [numbering]
 * @property {string} [token]
 * @property {string} [externalToken]
 * @property {number} [keepaliveMs]
 * @property {boolean} [encryption]
 * @property {ReconnectSettings} [reconnect]
 * @property {number} [openTimeoutMs]
 * @property {number} [publicationsMax]
 */

/**
 * What a driver carries out, or hands to the application.
 *
 * `open`: connect; answered by `opened` or `closed` with the same attempt. `transmit`: send a frame;
 * several in a row may be joined. `close`: close, or stop opening; nothing is answered. `timer`: call
 * `due(timer, now)` at this time; setting it again moves it. `deliver`: new messages in order,
 * duplicates dropped; `repeated` if they were delivered before and are for a later subscription.
 * `subscribed`: the server has handled these, refusals came before. `reported`: all before this mark
 * was taken. `refused`: not subscribed, and dropped here. `stopped`: the client does not reconnect.
 *
 * @typedef {{kind: "open", attempt: number, server: Server, secure: boolean}
 *   | {kind: "transmit", attempt: number, frame: string | Uint8Array}
 *   | {kind: "close", attempt: number, code: number, reason: string}
 *   | {kind: "timer", timer: string, at: number}
 *   | {kind: "cancel", timer: string}
 *   | {kind: "notify", notice: Notice, asks?: boolean}
 *   | {kind: "deliver", messages: MessageEvent[], repeated: boolean}
 *   | {kind: "published", result: PublishResult}
 *   | {kind: "subscribed", subjects: string[]}
 *   | {kind: "reported", mark: number}
 *   | {kind: "refused", subjects: string[], reason: string}
 *   | {kind: "connected", event: ConnectedEvent}
 *   | {kind: "stopped", code: number, reason: string}} Output
 */

/** Sums of fractions of a millisecond are not exact: a timer may seem to come too early by this. */
const ROUNDING_MS = 0.001;
const LIVE = new Set(["opening", "greeting", "up"]);
const ORDERLY = new Set([CLOSE_MOVED, CLOSE_NO_QUORUM, CLOSE_SHUTTING_DOWN]);
/** What a server may say before `connected`: it may have no use for this client at all. */
const FIRST = new Set(["connected", "move", "status", "error", "closed"]);
const RESULTS = new Set([
  "PUBLISH_OK",
  "PUBLISH_FAILED",
  "PUBLISH_DENIED",
  "MESSAGE_SIZE_LIMIT_EXCEEDED",
]);

/** The client without its transport. Not reentrant. */
export class ClientCore {
  /** @type {import("./phases.js").Phase} */
  phase = "idle";
  /** @type {ConnectedEvent | null} */
  connectedTo = null;
  positions = new Positions();
  subscriptions = new Subscriptions(this.positions);
  paused = false;
  /** Why the last connection ended or could not be opened. */
  failure = "nothing answered yet";

  #random;
  #newCodec;
  #codec;
  #token;
  #choice;
  #schedule;
  #publications;
  /** @type {Server | null} */
  #server = null;
  #attempt = 0;
  #downTold = false;
  #everUp = false;
  #moving = false;
  #now = 0;
  #lastReceived = 0;
  /** When a sign of life was asked for, as long as none came. @type {number | null} */
  #askedAt = null;
  #silenceMs = 0;
  #lookAt = 0;
  /** @type {Set<string>} */
  #timers = new Set();
  #fences = new Fences();
  #returning = new Returning(this.subscriptions);
  /** Subjects that were recovered one by one in this message. @type {string[]} */
  #singles = [];
  /** @type {Output[]} */
  #outputs = [];

  /**
   * @param {string[]} servers
   * @param {ClientSettings} settings
   * @param {() => Codec} newCodec makes the client's side of one encoding for each connection
   * @param {() => number} random gives numbers from 0 up to 1: for servers and delays
   */
  constructor(servers, settings, newCodec, random) {
    this.settings = {
      encryption: false,
      reconnect: RECONNECT_BROWSER,
      openTimeoutMs: OPEN_TIMEOUT_MS,
      publicationsMax: PUBLICATIONS_MAX,
      ...settings,
    };
    this.#random = random;
    this.#newCodec = newCodec;
    this.#codec = newCodec();
    this.#token = settings.token;
    this.#choice = new ServerChoice(this.#parsed(servers));
    this.#schedule = new Schedule(this.settings.reconnect);
    let resumed = settings.numbering ?? { groups: 0, taken: {} };
    if (settings.publisherKey !== undefined) {
      const { publisher, publisherKey } = settings;
      resumed = { ...resumed, publisher, publisherKey };
    }
    this.#publications = new Publications({
      numbered: settings.publisher !== undefined || resumed.publisher !== undefined,
      publicationsMax: this.settings.publicationsMax,
      resumed,
    });
  }

  // What the application wants

  /** Publications without a result; `publish` takes no more than `publicationsMax`. */
  get publicationsWaiting() {
    return this.#publications.size;
  }

  /** How far the publisher has come, for a later run that goes on from here. */
  get numbering() {
    return this.#publications.numbering;
  }

  /** Whether messages that the server sends are taken, as far as they are not held. */
  get receiving() {
    return this.phase === "up" && !this.paused;
  }

  /**
   * Connect now, also while waiting to reconnect. Without effect on a live connection.
   *
   * @param {number} now
   */
  connect(now) {
    this.#now = now;
    if (!LIVE.has(this.phase)) this.#open();
    return this.#take();
  }

  /**
   * Close the connection and stay away; publications without a result fail.
   *
   * @param {string} [reason]
   */
  disconnect(reason = "the client disconnected") {
    if (LIVE.has(this.phase)) this.#close(CLOSE_NORMAL, "");
    this.#endConnection();
    this.#cancel(TIMER_ATTEMPT);
    this.phase = "idle";
    this.#failPublications(reason);
    return this.#take();
  }

  /**
   * Fail all publications without a result; the client goes on trying to connect.
   *
   * @param {string} reason
   */
  giveUp(reason) {
    this.#failPublications(reason);
    return this.#take();
  }

  /**
   * Use these servers from the next connection on.
   *
   * @param {string[]} servers
   */
  setServers(servers) {
    this.#choice.replace(this.#parsed(servers));
  }

  /**
   * Use this token from now on; renews it in band on a live connection.
   *
   * @param {string} token
   * @param {number} now
   */
  setToken(token, now) {
    this.#now = now;
    this.#token = token;
    if (this.phase === "up") this.#command({ op: "token", token });
    else if (this.phase === "needs token" || this.phase === "stopped") this.#open();
    return this.#take();
  }

  /**
   * Subscribe to subjects and patterns, also for all later connections.
   *
   * `history`: so many cached messages first. `conflationMs`: at most one message a subject in so
   * many milliseconds. `replay`: with what was seen already. Answered by `subscribed`, and by
   * `refused` before it.
   *
   * @param {string[]} subjects
   * @param {{history?: number, conflationMs?: number, replay?: boolean}} [how]
   * @throws {InvalidSubjectError} before anything is subscribed
   */
  subscribe(subjects, { history = 0, conflationMs = 0, replay = false } = {}) {
    const wanted = [...new Set(subjects)];
    const options = { history, conflationMs };
    const added = wanted.filter((subject) => !this.subscriptions.has(subject));
    this.subscriptions.add(wanted, options, replay);
    if (this.phase === "up" && !this.paused) {
      const ping = this.#returning.begin(added);
      if (ping) this.#command(ping);
      const commands = replay
        ? this.subscriptions.commands(wanted, { replay })
        : this.subscriptions.firstCommands(wanted, options, { anew: true });
      for (const command of commands) this.#subscribe(command);
    }
    return this.#take();
  }

  /**
   * End subscriptions; those that do not exist are no error.
   *
   * @param {string[]} subjects
   */
  unsubscribe(subjects) {
    this.#returning.leave(subjects);
    const removed = this.subscriptions.remove(subjects);
    if (removed.length && this.phase === "up" && !this.paused) this.#unsubscribe(removed);
    return this.#take();
  }

  /** Receive no more messages; subscriptions and positions are kept. */
  pause() {
    const subjects = this.subscriptions.subjects();
    if (!this.paused && this.phase === "up" && subjects.length) this.#unsubscribe(subjects);
    this.paused = true;
    return this.#take();
  }

  /** Receive messages again, first those that were missed. */
  resume() {
    const wasPaused = this.paused;
    this.paused = false;
    const subjects = this.subscriptions.subjects();
    if (wasPaused && this.phase === "up" && subjects.length) {
      this.#command(this.#returning.resume(subjects));
      this.#resubscribe(subjects);
    }
    return this.#take();
  }

  /**
   * Receive nothing of these subscriptions for now; what is missed is recovered later.
   *
   * @param {string[]} subjects
   */
  hold(subjects) {
    const held = this.subscriptions.hold(subjects);
    if (held.length && this.phase === "up" && !this.paused) this.#unsubscribe(held);
    return this.#take();
  }

  /**
   * End `hold`.
   *
   * @param {string[]} subjects
   */
  release(subjects) {
    const released = this.subscriptions.release(subjects);
    if (released.length && this.phase === "up" && !this.paused) {
      this.#command(this.#returning.release(released));
      this.#resubscribe(released);
    }
    return this.#take();
  }

  /**
   * Publish; `id` and `number` of the request are the core's to give.
   *
   * Gives the number that the result will carry.
   *
   * @param {Record<string, any>} request
   * @throws {import("../errors.js").ClientError} when too many publications have no result yet
   */
  publish(request) {
    const { publication, command, result } = this.#publications.add(request);
    if (result) this.#published(result);
    else if (command) this.#command(command);
    else if (this.phase === "stopped") this.#failPublications("the client is not connected");
    return { publication, outputs: this.#take() };
  }

  /**
   * Ask for `reported` with the mark when all before it has been taken.
   *
   * @param {number} mark
   * @param {{caughtUp?: boolean}} [options] `caughtUp`: and when subscriptions have brought what
   *   comes before their live messages
   */
  mark(mark, options) {
    if (this.phase === "up") this.#command(this.#fences.marked(mark, options));
    return this.#take();
  }

  // What happened to the transport

  /**
   * Say who we are: the transport stands.
   *
   * @param {number} attempt
   * @param {number} now
   */
  opened(attempt, now) {
    if (attempt === this.#attempt && this.phase === "opening") {
      this.#transition("opened");
      this.#now = this.#lastReceived = now;
      this.#codec = this.#newCodec();
      this.#fences = new Fences();
      this.#returning = new Returning(this.subscriptions);
      const known = this.#publications.numbering;
      this.#command({
        op: "connect",
        token: this.#token,
        client: this.settings.client,
        publisher: known.publisher ?? this.settings.publisher,
        publisher_key: known.publisherKey,
        external_token: this.settings.externalToken,
        keepalive_ms: this.settings.keepaliveMs,
      });
    }
    return this.#take();
  }

  /**
   * Note that bytes arrived; a part of a message is a sign of life as well.
   *
   * @param {number} attempt
   * @param {number} now
   */
  heard(attempt, now) {
    if (attempt === this.#attempt && (this.phase === "greeting" || this.phase === "up")) {
      this.#now = this.#lastReceived = now;
    }
  }

  /**
   * Take one message of the transport; a server that breaks the protocol is left for good.
   *
   * @param {number} attempt
   * @param {string | Uint8Array} payload
   * @param {number} now
   */
  received(attempt, payload, now) {
    if (attempt === this.#attempt && (this.phase === "greeting" || this.phase === "up")) {
      this.#now = this.#lastReceived = now;
      try {
        this.#events(this.#codec.events(payload));
      } catch (error) {
        if (!(error instanceof ProtocolError)) throw error;
        this.#close(error.code, error.reason);
        this.#stop(error.code, `the server broke the protocol: ${error.reason}`);
      }
      this.#publishReady();
      if (this.#singles.length && this.phase === "up") this.#unsubscribe(this.#singles);
      this.#singles = [];
    }
    return this.#take();
  }

  /**
   * Note that the transport is closed or could not be opened; `code` as in docs/protocol.md.
   *
   * @param {number} attempt
   * @param {number} code
   * @param {string} reason
   * @param {number} now
   */
  closed(attempt, code, reason, now) {
    if (attempt === this.#attempt && LIVE.has(this.phase)) {
      this.#now = now;
      this.#lost(code, reason);
    }
    return this.#take();
  }

  /**
   * Note that a timer is due.
   *
   * @param {string} timer
   * @param {number} now
   */
  due(timer, now) {
    this.#now = now;
    this.#timers.delete(timer);
    const isOpening = this.phase === "opening" || this.phase === "greeting";
    if (timer === TIMER_ATTEMPT && this.phase === "waiting") {
      this.#open();
    } else if (timer === TIMER_OPENING && isOpening) {
      this.#abandon(CLOSE_GOING_AWAY, "the server did not answer in time");
    } else if (timer === TIMER_LIVENESS && this.phase === "up") {
      this.#checkLiveness();
    } else if (timer === TIMER_MOVE && (this.phase === "greeting" || this.phase === "up")) {
      this.#move();
    } else if (timer === TIMER_PUBLISH && this.phase === "up") {
      this.#publications.retry();
      this.#publishReady();
    }
    return this.#take();
  }

  // The connection

  /** @param {string} event */
  #transition(event) {
    const target = TRANSITIONS[this.phase][event];
    if (target === undefined) throw new Error(`'${event}' while the client is ${this.phase}`);
    this.phase = target;
  }

  #open() {
    this.#transition("open");
    this.#cancel(TIMER_ATTEMPT);
    if (this.#server !== null && this.#schedule.reconnecting(this.#now)) {
      this.#notify("RECONNECT_RATE_EXCEEDED");
    }
    this.#server = this.#choice.choose(this.#random);
    this.#attempt += 1;
    this.#emit({
      kind: "open",
      attempt: this.#attempt,
      server: this.#server,
      secure: this.#server.secure ?? this.settings.encryption,
    });
    this.#setTimer(TIMER_OPENING, this.#now + this.settings.openTimeoutMs);
  }

  /**
   * @param {number} code
   * @param {string} reason
   */
  #lost(code, reason) {
    if (code >= 4100 && code <= 4199) {
      this.#stop(code, reason);
      return;
    }
    const [wasMoving, wasUp] = [this.#moving, this.phase === "up"];
    this.#endConnection();
    if (!wasUp && !wasMoving) {
      this.#retry(reason);
      return;
    }
    if (wasUp) this.#schedule.lost(this.#now);
    if (code === CLOSE_TOKEN_EXPIRED) {
      this.#transition("token");
      this.#down(reason, { always: true });
    } else if ((ORDERLY.has(code) || wasMoving) && this.#schedule.hop(this.#choice.count)) {
      this.#transition("retry");
      this.#leaveOut();
      this.#setTimer(TIMER_ATTEMPT, this.#now + this.#moveJitterMs());
    } else {
      // A slow consumer finds no faster server elsewhere, and this one has what it missed.
      this.#retry(reason, { elsewhere: code !== CLOSE_SLOW_CONSUMER });
    }
  }

  /**
   * Wait by the schedule for the next attempt.
   *
   * @param {string} reason
   * @param {{elsewhere?: boolean}} [where]
   */
  #retry(reason, { elsewhere = true } = {}) {
    this.#transition("retry");
    if (elsewhere) this.#leaveOut();
    this.#down(reason);
    this.#setTimer(TIMER_ATTEMPT, this.#now + this.#schedule.nextDelayMs(this.#random));
  }

  /** Connect to another server than this one, if there is one. */
  #leaveOut() {
    this.#choice.failed(/** @type {Server} */ (this.#server));
  }

  /** Go elsewhere: the delay of `move` is over. */
  #move() {
    this.#close(CLOSE_NORMAL, "moving");
    this.#endConnection();
    if (this.phase === "up") this.#schedule.lost(this.#now);
    if (this.#schedule.hop(this.#choice.count)) {
      this.#transition("retry");
      this.#open();
    } else {
      this.#retry("every server sends this client elsewhere");
    }
  }

  /**
   * Give this connection up and reconnect.
   *
   * @param {number} code
   * @param {string} reason
   */
  #abandon(code, reason) {
    this.#close(code, reason);
    this.#lost(CLOSE_GOING_AWAY, reason);
  }

  /**
   * @param {number} code
   * @param {string} reason
   */
  #stop(code, reason) {
    this.#endConnection();
    this.#transition("stop");
    this.#down(reason, { always: true });
    this.#failPublications(reason);
    this.#emit({ kind: "stopped", code, reason });
  }

  /** Do what every end of a connection, or of waiting for one, has in common. */
  #endConnection() {
    for (const timer of [TIMER_OPENING, TIMER_LIVENESS, TIMER_MOVE, TIMER_PUBLISH]) {
      this.#cancel(timer);
    }
    this.#attempt += 1;
    this.#moving = false;
    this.connectedTo = null;
    for (const result of this.#publications.lost()) this.#published(result);
  }

  /**
   * @param {string} reason
   * @param {{always?: boolean}} [told]
   */
  #down(reason, { always = false } = {}) {
    this.failure = `${this.#where()}: ${reason}`;
    const isDue = this.#schedule.failed() || always;
    if (isDue && !this.#downTold) {
      this.#downTold = true;
      this.#notify("SERVER_DOWN", { info: this.failure });
    }
  }

  #where() {
    return authority(/** @type {Server} */ (this.#server));
  }

  /** @param {string} reason */
  #failPublications(reason) {
    for (const result of this.#publications.stopped(reason)) this.#published(result);
  }

  #moveJitterMs() {
    return uniform(this.#random, 0, MOVE_JITTER_MS);
  }

  #checkLiveness() {
    const isLate = this.#now - this.#lookAt > LATE_MS;
    if (this.#askedAt !== null && this.#lastReceived > this.#askedAt) this.#askedAt = null;
    if (this.#askedAt !== null && !isLate) {
      this.#abandon(CLOSE_KEEPALIVE_MISSED, "nothing was heard of the server for too long");
    } else if (this.#askedAt !== null || this.#now >= this.#silentAt - ROUNDING_MS) {
      // A client that stood still itself may not have read what came: it asks once more.
      this.#command({ op: "ping" });
      this.#askedAt = this.#now;
      this.#lookLater(this.#now + this.#shortenedMs(PONG_MS));
    } else {
      this.#lookAgain();
    }
  }

  /** Look at the connection when the server has been silent for a while. */
  #lookAgain() {
    this.#silenceMs = this.#shortenedMs(SILENCE_MS);
    this.#lookLater(Math.max(this.#now, this.#silentAt));
  }

  /** When the server will have been silent for so long that it is asked for a sign of life. */
  get #silentAt() {
    return this.#lastReceived + this.#silenceMs;
  }

  /**
   * Return another time each time, so that very many clients do not ask at once.
   *
   * @param {number} longestMs
   */
  #shortenedMs(longestMs) {
    const { keepalive_ms: keepaliveMs } = /** @type {ConnectedEvent} */ (this.connectedTo);
    return Math.min(longestMs, keepaliveMs) * uniform(this.#random, 0.75, 1);
  }

  /** @param {number} at */
  #lookLater(at) {
    this.#lookAt = at;
    this.#setTimer(TIMER_LIVENESS, at);
  }

  // What the server says

  /** @param {WireEvent[]} batch */
  #events(batch) {
    /** @type {MessageEvent[]} */
    let messages = [];
    const deliver = () => {
      if (messages.length) this.#emit({ kind: "deliver", messages, repeated: false });
      messages = [];
    };
    for (const event of batch) {
      if (this.phase === "greeting" && !FIRST.has(event.op)) {
        throw new ProtocolError("the first event of a session is `connected`");
      }
      if (event.op === "message") {
        if (!this.#returning.takes(event)) continue;
        if (!this.paused && this.subscriptions.takes(event)) {
          if (this.positions.repeats(event)) {
            deliver();
            this.#emit({ kind: "deliver", messages: [event], repeated: true });
          } else if (this.positions.accept(event)) {
            messages.push(event);
          }
        }
        // What a pattern brought was on its way before the single subscription stood.
        if (
          this.subscriptions.lone.size &&
          event.match === undefined &&
          !this.subscriptions.replayAwaited(event.subject)
        ) {
          this.#singleDone(event.subject);
        }
        continue;
      }
      deliver();
      this.#handle(event);
      if (this.phase !== "greeting" && this.phase !== "up") return;
    }
    deliver();
  }

  /** @param {Exclude<WireEvent, MessageEvent>} event */
  #handle(event) {
    switch (event.op) {
      case "connected":
        return this.#onConnected(event);
      case "status":
        return this.#onStatus(event);
      case "reset":
        return this.#onReset(event);
      case "move":
        return this.#onMove(event);
      case "error":
        return this.#onError(event);
      case "pong":
        return this.#onPong(event);
      case "closed":
        this.#close(CLOSE_NORMAL, "");
        return this.#lost(event.code, event.reason);
    }
  }

  /**
   * Let a subject that was recovered one by one go on through its pattern.
   *
   * @param {string} subject
   */
  #singleDone(subject) {
    if (this.subscriptions.recovered(subject)) this.#singles.push(subject);
  }

  /** @param {ConnectedEvent} event */
  #onConnected(event) {
    if (this.phase !== "greeting") {
      throw new ProtocolError("`connected` comes once, as the first event");
    }
    if (event.version !== PROTOCOL_VERSION || event.groups < 1) {
      throw new ProtocolError(
        `version ${event.version} with ${event.groups} subject groups was answered; this ` +
          `client speaks version ${PROTOCOL_VERSION}`,
      );
    }
    this.#transition("connected");
    this.#cancel(TIMER_OPENING);
    this.connectedTo = event;
    this.#choice.succeeded();
    this.#schedule.succeeded(this.#now);
    this.#emit({ kind: "connected", event });
    if (this.#downTold || !this.#everUp) this.#notify("SERVER_UP", { info: this.#where() });
    this.#downTold = false;
    this.#everUp = true;
    this.positions.connected(event.history);
    this.subscriptions.connected();
    if (event.keepalive_ms) {
      this.#askedAt = null;
      this.#lookAgain();
    }
    if (!this.paused) this.#resubscribe(this.subscriptions.subjects());
    for (const result of this.#publications.connected(event)) this.#published(result);
  }

  /** @param {StatusEvent} event */
  #onStatus(event) {
    const { status, subject, closure, missing } = event;
    if (RESULTS.has(status)) {
      for (const result of this.#publications.answered(event)) {
        this.#published(result, result.publication === event.id ? event : undefined);
      }
      return;
    }
    this.#notify(status, { info: event.reason || event.info, subject, closure, missing });
    if (subject === undefined) return;
    if (status === "DATA_SYNC" || status === "DATA_RESYNC") {
      const again = this.subscriptions.replays(subject);
      for (const command of again) this.#subscribe(command);
      if (!again.length) this.#singleDone(subject);
    } else if (status === "SUBSCRIBE_ALLOW") {
      this.#fences.allowed(subject, event.id);
    } else if (status === "SUBSCRIBE_DENY") {
      this.#refuse(subject, event.id, event.reason || "the subscription was refused");
    }
  }

  /** @param {{history: string, subjects: string[]}} event */
  #onReset({ history, subjects }) {
    const known = subjects.filter(
      (subject) => this.subscriptions.has(subject) || this.positions.get(subject) !== undefined,
    );
    try {
      this.positions.reset(history, subjects);
    } catch (error) {
      if (!(error instanceof InvalidSubjectError)) throw error;
      throw new ProtocolError(`\`reset\` names a bad subject: ${error.message}`);
    }
    const info = `the server numbers messages anew (history ${history}): some may be lost`;
    for (const subject of known) this.#notify("DATA_RESYNC", { info, subject });
  }

  /** @param {{delay_ms: number, servers?: string[]}} event */
  #onMove({ delay_ms: delayMs, servers = [] }) {
    this.#moving = true;
    this.#leaveOut();
    try {
      this.#choice.prefer(this.#parsed(servers));
    } catch (error) {
      throw new ProtocolError(`\`move\` names a bad server: ${/** @type {Error} */ (error).message}`);
    }
    this.#setTimer(TIMER_MOVE, this.#now + Math.max(0, delayMs) + this.#moveJitterMs());
  }

  /** @param {{code: string, reason: string, id?: string | number}} event */
  #onError({ code, reason, id }) {
    const subjects = this.#fences.subjects(id);
    if (typeof id === "number") {
      const results = this.#publications.answered({
        op: "status",
        status: "PUBLISH_FAILED",
        id,
        reason,
        certain: true,
      });
      for (const result of results) this.#published(result);
    } else if (subjects.length === 1) {
      this.#notify("SUBSCRIBE_DENY", { info: reason, subject: subjects[0] });
      this.#refuse(subjects[0], id, reason);
    } else {
      this.#notify("ERROR", { info: `${code}: ${reason}` });
    }
  }

  /** @param {{t?: unknown, positions?: Record<string, import("./positions.js").Position>}} event */
  #onPong({ t, positions = {} }) {
    const told = Object.entries(positions).filter(
      ([subject]) => this.subscriptions.has(subject) && !this.#returning.awaits(subject),
    );
    this.positions.begin(Object.fromEntries(told));
    // The answer to an earlier subscription is none to the newest one.
    const subjects = this.#fences.passed(t).filter((subject) => !this.#returning.awaits(subject));
    if (subjects.length) this.#emit({ kind: "subscribed", subjects });
    const mark = this.#fences.mark(t);
    if (mark !== undefined) this.#emit({ kind: "reported", mark });
    this.#returning.passed(t);
  }

  // Commands

  /** @param {string[]} subjects */
  #resubscribe(subjects) {
    for (const command of this.subscriptions.commands(subjects)) this.#subscribe(command);
  }

  /** @param {Record<string, any>} command */
  #subscribe(command) {
    for (const fenced of this.#fences.put(command)) this.#command(fenced);
  }

  /** @param {string[]} subjects */
  #unsubscribe(subjects) {
    this.#returning.unsubscribed = true;
    const ending = this.subscriptions.ending(subjects);
    for (const command of this.subscriptions.firstCommands(ending, { history: 0, conflationMs: 0 })) {
      this.#command({ op: "unsubscribe", subjects: command.subjects });
    }
  }

  /**
   * Drop a subscription, unless the refusal is about an earlier one of the same subject.
   *
   * What is paused or held will be asked for again, and then be refused again.
   *
   * @param {string} subject
   * @param {unknown} id
   * @param {string} reason
   */
  #refuse(subject, id, reason) {
    const isNewest = this.#fences.refused(subject, id);
    if (!isNewest || this.paused || !this.subscriptions.isTaken(subject)) return;
    this.subscriptions.remove([subject]);
    this.#emit({ kind: "refused", subjects: [subject], reason });
  }

  #publishReady() {
    if (this.phase !== "up") return;
    for (const command of this.#publications.ready()) this.#command(command);
    if (this.#publications.resting) {
      const delayMs = uniform(this.#random, 0.5, 1) * PUBLISH_RETRY_MS;
      this.#setTimer(TIMER_PUBLISH, this.#now + delayMs);
    }
  }

  /**
   * @param {PublishResult} result
   * @param {StatusEvent} [event]
   */
  #published(result, event) {
    this.#emit({ kind: "published", result });
    if (event?.closure === undefined) return;
    const { epoch, seq } = result;
    this.#notify(result.status, {
      info: result.reason,
      subject: event.subject,
      closure: event.closure,
      position: seq ? { history: this.positions.history, epoch, seq } : undefined,
    });
  }

  /** @param {Record<string, any>} command */
  #command(command) {
    this.#emit({ kind: "transmit", attempt: this.#attempt, frame: this.#codec.command(command) });
  }

  /**
   * @param {string} status
   * @param {Omit<Notice, "status">} [told]
   */
  #notify(status, told = {}) {
    this.#emit({ kind: "notify", notice: { status, ...told } });
  }

  /**
   * @param {number} code
   * @param {string} reason
   */
  #close(code, reason) {
    this.#emit({ kind: "close", attempt: this.#attempt, code, reason });
  }

  /**
   * @param {string} timer
   * @param {number} at
   */
  #setTimer(timer, at) {
    this.#timers.add(timer);
    this.#emit({ kind: "timer", timer, at });
  }

  /** @param {string} timer */
  #cancel(timer) {
    if (this.#timers.delete(timer)) this.#emit({ kind: "cancel", timer });
  }

  /** @param {Output} output */
  #emit(output) {
    this.#outputs.push(output);
  }

  #take() {
    const taken = this.#outputs;
    this.#outputs = [];
    return taken;
  }

  /** @param {string[]} servers */
  #parsed(servers) {
    return servers.map((text) => parseServer(text, this.settings.encryption));
  }
}
