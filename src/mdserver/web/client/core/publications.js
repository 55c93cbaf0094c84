/**
 * Publications on their way: numbers, results, repeats.
 *
 * The rules are those of docs/protocol.md, "Numbered publications": the publications of one subject
 * group form a line that is numbered from 1 without gaps. As long as all goes well a line is sent as
 * it comes. When a number of a line is not taken, all that follow it in flight are refused for the
 * gap; the line is then held until everything in flight has its answer, numbered anew as far as that
 * is safe, and sent again in order.
 *
 * Safe means: the number of a publication of which nobody knows whether it was taken (its answer was
 * lost, or said so) is never changed, because the server recognises a repeat by it.
 *
 * No number ever stands for two publications. Where the server expects one that may have been taken
 * before, the line begins a new series: its numbers go on after the next multiple of SERIES_NUMBERS.
 * A server of an earlier release knows no series. There the line goes on from the number that the
 * server expects, and what may have been taken before ends as uncertain. So it is in a new series, if
 * one before it ended while it was uncertain: an attempt of that one may still be taken.
 */

import { ClientError } from "../errors.js";
import { groupOf, utf8Bytes } from "./subjects.js";

/**
 * What became of a publication; exactly one for each that was taken.
 *
 * `duplicate` with epoch 0: it is in, but its position is forgotten. `certain`: for a failure,
 * whether the publication surely left no trace.
 *
 * @typedef {object} PublishResult
 * @property {number} publication
 * @property {"PUBLISH_OK" | "PUBLISH_FAILED" | "PUBLISH_DENIED" | "MESSAGE_SIZE_LIMIT_EXCEEDED"} status
 * @property {string} [reason]
 * @property {number} epoch
 * @property {number} seq
 * @property {boolean} duplicate
 * @property {boolean} certain
 */

/**
 * How far a publisher has come: of how many subject groups, the last number taken in each.
 *
 * `publisher` is the identity under which the server counts, `publisherKey` what proves that it is
 * this client's: a secret, as it lets others go on with the numbers.
 *
 * @typedef {object} Numbering
 * @property {number} groups
 * @property {Record<string, number>} taken
 * @property {string} [publisher]
 * @property {string} [publisherKey]
 */

/** @typedef {Record<string, any>} Command a `publish` command as docs/protocol.md has it */

const UNNUMBERED = -1;
const SERIES_NUMBERS = 2 ** 36;

/** The publications of one subject group that have no result yet, in order. */
class Line {
  /** @type {Map<number, Outgoing>} */
  queue = new Map();
  inFlight = 0;
  /** Repeats since the last publication that was taken. */
  rounds = 0;
  held = false;
  /** Held, and the next round waits for the retry timer. */
  patient = false;
  /** The newest series that was begun. */
  series = 0;
  /** The greatest number of those that ended while they were uncertain. */
  unresolved = 0;
  /** No repeat would be recognised: what is doubted has to end. */
  endsDoubted = false;

  /**
   * @param {number} group
   * @param {number} taken numbering goes on after this one
   */
  constructor(group, taken) {
    this.group = group;
    this.last = taken;
    this.accepted = taken;
  }

  /**
   * Take the number that the server expected in place of a publication's.
   *
   * @param {Outgoing} outgoing
   * @param {number} expected
   */
  refused(outgoing, expected) {
    const { number } = outgoing;
    const all = [...this.queue.values()];
    const isGiven = expected <= this.accepted || all.some((each) => each.uncertain);
    // Behind others an earlier attempt may still be under way, and be taken after theirs.
    if (outgoing !== all[0] || expected === number || !isGiven) {
      this.accepted = Math.max(this.accepted, expected - 1);
      return;
    }
    // All before it have ended. If none of them may still be taken, nobody fills the gap, and no
    // attempt of the line can be taken where this one was refused. Elsewhere one may have been.
    for (const each of all) {
      each.uncertain = false;
      each.number = 0;
    }
    this.accepted = expected - 1;
    // A server that refuses the first number of a series is of an earlier release.
    const isEarlier = number === this.series * SERIES_NUMBERS + 1;
    this.endsDoubted = isEarlier || expected <= this.unresolved;
    if (!isEarlier) {
      this.series = Math.max(this.series, Math.floor(this.last / SERIES_NUMBERS)) + 1;
      this.accepted = this.series * SERIES_NUMBERS;
    }
  }

  /**
   * Number what is left, in order, after what was taken.
   *
   * What is uncertain keeps its number, unless a series was begun since: the server would see no gap
   * behind it, and take others before it.
   */
  renumber() {
    let number = this.accepted;
    for (const outgoing of this.queue.values()) {
      if (outgoing.uncertain && outgoing.number) {
        number = Math.max(number, outgoing.number);
      } else {
        number += 1;
        outgoing.number = number;
      }
    }
    this.last = number;
  }
}

/**
 * A publication without a result yet.
 *
 * `number` is 0 until it is sent, also in a new series. `uncertain`: an earlier attempt may have been
 * taken under this number. `doubted`: one may have been taken, under whatever number.
 */
class Outgoing {
  /** @type {Line | null} */
  line = null;
  number = 0;
  inFlight = false;
  uncertain = false;
  doubted = false;

  /**
   * @param {number} id
   * @param {Command} request
   */
  constructor(id, request) {
    this.id = id;
    this.request = request;
  }

  /** Note that nobody knows whether the last attempt was taken. */
  doubt() {
    this.uncertain = this.doubted = true;
  }
}

/** All lines of a client, at most `publicationsMax` publications in them. */
export class Publications {
  /** @type {string | undefined} */
  #publisher;
  /** @type {string | undefined} */
  #publisherKey;
  #resumed;
  #numbered;
  #max;
  #history = "";
  #groups = 0;
  #flowing = false;
  #messageBytesMax = 0;
  #nextId = 1;
  /** @type {Map<number, Outgoing>} */
  #outstanding = new Map();
  /** @type {Map<number, Line>} */
  #lines = new Map();
  /** @type {Map<number, Line>} */
  #ready = new Map();
  /** @type {Map<number, Line>} */
  #resting = new Map();

  /** @param {{numbered: boolean, publicationsMax: number, resumed: Numbering}} settings */
  constructor({ numbered, publicationsMax, resumed }) {
    this.#numbered = numbered;
    this.#max = publicationsMax;
    this.#resumed = resumed;
    this.#publisher = resumed.publisher;
    this.#publisherKey = resumed.publisherKey;
  }

  get size() {
    return this.#outstanding.size;
  }

  /** Whether some line waits for the retry timer. */
  get resting() {
    return this.#resting.size > 0;
  }

  /**
   * How far each line has come, also those of the run that this one goes on from.
   *
   * @returns {Numbering}
   */
  get numbering() {
    if (!this.#groups) return this.#resumed;
    const isSame = this.#resumed.groups === this.#groups;
    /** @type {Record<string, number>} */
    const taken = isSame ? { ...this.#resumed.taken } : {};
    for (const line of this.#lines.values()) {
      if (line.group !== UNNUMBERED) taken[line.group] = line.accepted;
    }
    return {
      groups: this.#groups,
      taken,
      publisher: this.#publisher,
      publisherKey: this.#publisherKey,
    };
  }

  /**
   * Take a publication; gives its id, and the command when it is to be sent at once.
   *
   * Instead of the command it may have its result already.
   *
   * @param {Command} request
   * @returns {{publication: number, command?: Command, result?: PublishResult}}
   * @throws {ClientError} when too many have no result yet
   */
  add(request) {
    if (this.#outstanding.size >= this.#max) {
      throw new ClientError(`${this.#max} publications have no result yet; wait for one`);
    }
    const publication = this.#nextId;
    this.#nextId += 1;
    const outgoing = new Outgoing(publication, request);
    if (this.#flowing && contentBytes(request) > this.#messageBytesMax) {
      return { publication, result: this.#oversized(outgoing) };
    }
    this.#outstanding.set(publication, outgoing);
    if (!this.#flowing) return { publication };
    const line = this.#joinLine(outgoing);
    if (line.held) return { publication };
    line.last += 1;
    outgoing.number = line.last;
    return { publication, command: this.#send(line, outgoing) };
  }

  /**
   * Note that commands can be sent: everything without a result is to be sent, in order.
   *
   * Gives the results of what is too large for this server, since a server would close the
   * connection for some of it, again and again; and of what cannot be repeated.
   *
   * @param {import("../codec/events.js").ConnectedEvent} server
   */
  connected(server) {
    this.#flowing = true;
    this.#messageBytesMax = server.message_bytes_max;
    const results = this.#identified(server);
    const outstanding = () => this.#outstanding.values();
    const oversized = [...outstanding()].filter(
      (outgoing) => contentBytes(outgoing.request) > this.#messageBytesMax,
    );
    for (const outgoing of oversized) this.#drop(outgoing);
    if (server.groups !== this.#groups) {
      // Another number of groups is another cluster: it has seen none of our numbers.
      this.#groups = server.groups;
      this.#leaveLines();
    }
    for (const outgoing of outstanding()) {
      if (outgoing.line === null) this.#joinLine(outgoing);
    }
    this.#ready = new Map([...this.#lines].filter(([, line]) => line.queue.size));
    return [...results, ...oversized.map((outgoing) => this.#oversized(outgoing))];
  }

  /**
   * Take the identity that the server counts under; another one begins at 1.
   *
   * When the history is another one as well, nothing of what was sent is there any more. Else it may
   * be, and nobody would recognise a repeat.
   *
   * @param {import("../codec/events.js").ConnectedEvent} server
   */
  #identified(server) {
    const [known, history] = [this.#publisher, this.#history];
    this.#publisher = server.publisher;
    this.#publisherKey = server.publisher_key;
    this.#history = server.history;
    if (known === undefined || known === server.publisher) return [];
    this.#resumed = { groups: 0, taken: {} };
    const unsure = [...this.#outstanding.values()].filter(
      ({ doubted, line }) => history === server.history && doubted && line?.group !== UNNUMBERED,
    );
    for (const outgoing of unsure) this.#drop(outgoing);
    this.#leaveLines();
    const reason = "the server knows this publisher no more, so it would not recognise a repeat";
    return unsure.map((outgoing) => failed(outgoing, reason, false));
  }

  #leaveLines() {
    this.#lines = new Map();
    for (const outgoing of this.#outstanding.values()) {
      outgoing.line = null;
      outgoing.uncertain = outgoing.doubted = false;
    }
  }

  /** Note that the connection ended; gives the results of those that cannot be repeated. */
  lost() {
    this.#flowing = false;
    this.#ready = new Map();
    this.#resting = new Map();
    const ended = [];
    for (const line of this.#lines.values()) {
      line.inFlight = 0;
      line.rounds = 0;
      line.held = line.patient = false;
      ended.push(...this.#endDoubted(line));
    }
    for (const outgoing of [...this.#outstanding.values()]) {
      if (!outgoing.inFlight) continue;
      outgoing.inFlight = false;
      outgoing.doubt();
      if (outgoing.request.qos === "STANDARD") {
        this.#drop(outgoing);
        ended.push(failed(outgoing, "the connection was lost before the result came", false));
      }
    }
    return ended;
  }

  /**
   * Note that the client will not reconnect: the results of all that is left (after `lost`).
   *
   * @param {string} reason
   */
  stopped(reason) {
    const left = [...this.#outstanding.values()];
    for (const outgoing of left) this.#drop(outgoing);
    return left.map((outgoing) => failed(outgoing, reason, !outgoing.doubted));
  }

  /** Return the commands of lines that are to be sent again. */
  ready() {
    /** @type {Command[]} */
    const commands = [];
    for (const line of this.#ready.values()) {
      line.held = line.patient = false;
      if (line.group !== UNNUMBERED) line.renumber();
      for (const outgoing of line.queue.values()) {
        if (!outgoing.inFlight) commands.push(this.#send(line, outgoing));
      }
    }
    this.#ready = new Map();
    return commands;
  }

  /** Note that the retry timer is due. */
  retry() {
    for (const [group, line] of this.#resting) this.#ready.set(group, line);
    this.#resting = new Map();
  }

  /**
   * Take an answer; gives the results of what ends with it. There is none when the publication is to
   * be repeated, or is not ours.
   *
   * @param {import("../codec/events.js").StatusEvent} status
   * @returns {PublishResult[]}
   */
  answered(status) {
    const outgoing = typeof status.id === "number" ? this.#outstanding.get(status.id) : undefined;
    if (!outgoing?.line || !outgoing.inFlight) return [];
    const { line } = outgoing;
    outgoing.inFlight = false;
    line.inFlight -= 1;
    if (status.status === "PUBLISH_OK") {
      line.accepted = Math.max(line.accepted, outgoing.number);
      line.rounds = 0;
      outgoing.uncertain = false;
      this.#drop(outgoing);
      const { epoch = 0, seq = 0, duplicate = false } = status;
      const result = { ...resultOf(outgoing, "PUBLISH_OK", true), epoch, seq, duplicate };
      return [result, ...this.#resume(line)];
    }
    if (line.group !== UNNUMBERED) {
      line.held = true;
      if (isRepeated(line, outgoing, status)) return this.#resume(line);
    }
    this.#drop(outgoing);
    const isCertain = status.certain !== false && !outgoing.doubted;
    const reason = status.reason || status.info || status.status;
    const refused = /** @type {PublishResult["status"]} */ (status.status);
    return [resultOf(outgoing, refused, isCertain, reason), ...this.#resume(line)];
  }

  /**
   * Let a held line go on once nothing of it is in flight; gives the results of what ends instead.
   *
   * @param {Line} line
   * @returns {PublishResult[]}
   */
  #resume(line) {
    if (!line.held || line.inFlight) return [];
    const ended = this.#endDoubted(line);
    if (line.queue.size) {
      line.rounds += 1;
      (line.patient ? this.#resting : this.#ready).set(line.group, line);
    } else {
      line.held = line.patient = false;
      line.renumber();
    }
    return ended;
  }

  /**
   * End what may have been taken, if no repeat of it would be recognised.
   *
   * @param {Line} line
   */
  #endDoubted(line) {
    const doubted = [...line.queue.values()].filter((each) => line.endsDoubted && each.doubted);
    line.endsDoubted = false;
    for (const outgoing of doubted) this.#drop(outgoing);
    const reason = "the server would not recognise a repeat";
    return doubted.map((outgoing) => failed(outgoing, reason, false));
  }

  /**
   * @param {Line} line
   * @param {Outgoing} outgoing
   */
  #send(line, outgoing) {
    outgoing.inFlight = true;
    line.inFlight += 1;
    const command = { ...outgoing.request, id: outgoing.id };
    return line.group === UNNUMBERED ? command : { ...command, number: outgoing.number };
  }

  /** @param {Outgoing} outgoing */
  #oversized(outgoing) {
    const bytes = contentBytes(outgoing.request);
    const reason = `the message has ${bytes} bytes, the server takes ${this.#messageBytesMax}`;
    return resultOf(outgoing, "MESSAGE_SIZE_LIMIT_EXCEEDED", !outgoing.doubted, reason);
  }

  /** @param {Outgoing} outgoing */
  #drop(outgoing) {
    this.#outstanding.delete(outgoing.id);
    const { line } = outgoing;
    if (line === null) return;
    line.queue.delete(outgoing.id);
    // Its number may be taken; if it is not, the next one is refused for the gap.
    if (outgoing.uncertain) {
      line.accepted = Math.max(line.accepted, outgoing.number);
      line.unresolved = Math.max(line.unresolved, outgoing.number);
    }
  }

  /** @param {Outgoing} outgoing */
  #joinLine(outgoing) {
    const { subject, qos } = outgoing.request;
    const isNumbered = this.#numbered && qos !== "STANDARD";
    const group = isNumbered ? groupOf(subject, this.#groups) : UNNUMBERED;
    let line = this.#lines.get(group);
    if (line === undefined) {
      const isSame = this.#resumed.groups === this.#groups;
      line = new Line(group, isSame ? (this.#resumed.taken[group] ?? 0) : 0);
      this.#lines.set(group, line);
    }
    line.queue.set(outgoing.id, outgoing);
    outgoing.line = line;
    return line;
  }
}

/**
 * Return what counts against MaxMessageSize: content, field names and values, in UTF-8 bytes.
 *
 * @param {Command} request
 */
export function contentBytes({ content, fields }) {
  let bytes = typeof content === "string" ? utf8Bytes(content) : content.byteLength;
  for (const [name, value] of Object.entries(fields ?? {})) {
    bytes += utf8Bytes(name) + utf8Bytes(/** @type {string} */ (value));
  }
  return bytes;
}

/**
 * Return whether a failed publication of a numbered line is to be sent again.
 *
 * @param {Line} line
 * @param {Outgoing} outgoing
 * @param {import("../codec/events.js").StatusEvent} status
 */
function isRepeated(line, outgoing, status) {
  if (status.status !== "PUBLISH_FAILED") return false;
  if (status.expected !== undefined) {
    // Once at once; another gap with nothing taken in between gives the server time.
    line.patient ||= line.rounds > 0;
    line.refused(outgoing, status.expected);
    return true;
  }
  if (status.certain === false || outgoing.uncertain) {
    // A sure failure of a repeat says nothing of the attempts before it.
    line.patient = true;
    outgoing.doubt();
    return true;
  }
  return false;
}

/**
 * @param {Outgoing} outgoing
 * @param {string} reason
 * @param {boolean} certain
 */
function failed(outgoing, reason, certain) {
  return resultOf(outgoing, "PUBLISH_FAILED", certain, reason);
}

/**
 * @param {Outgoing} outgoing
 * @param {PublishResult["status"]} status
 * @param {boolean} certain
 * @param {string} [reason]
 * @returns {PublishResult}
 */
function resultOf({ id: publication }, status, certain, reason) {
  return { publication, status, reason, epoch: 0, seq: 0, duplicate: false, certain };
}
