/**
 * Subjects (`/segment/segment/...`) and patterns over them.
 *
 * `*` stands for one segment, `**` for one or more and only as the last one; both are special only
 * as whole segments. A wildcard as the first segment leaves `/__mdserver__/...` out: the server's
 * own subjects have to be asked for by name.
 */

import { InvalidSubjectError } from "../errors.js";
import { SUBJECT_BYTES_MAX, SUBJECT_SEGMENTS_MAX } from "./limits.js";

const ONE = "*";
const REST = "**";
const RESERVED = "__mdserver__";
const SHOWN_MAX = 80;
const encoder = new TextEncoder();

/** A subscription to more than one subject. */
export class Pattern {
  /**
   * @param {string} text
   * @param {string[]} segments
   */
  constructor(text, segments) {
    this.text = text;
    this.rest = segments[segments.length - 1] === REST;
    this.segments = this.rest ? segments.slice(0, -1) : segments;
  }

  /**
   * Return whether a subject of these segments is one of the pattern's.
   *
   * @param {string[]} segments
   */
  matches(segments) {
    const own = this.segments;
    if (this.rest ? segments.length <= own.length : segments.length !== own.length) return false;
    for (let i = 0; i < own.length; i++) {
      if (own[i] !== ONE && own[i] !== segments[i]) return false;
    }
    return segments[0] !== RESERVED || own[0] === RESERVED;
  }

  /**
   * Return whether some subject is one of both patterns'.
   *
   * @param {Pattern} other
   */
  meets(other) {
    const [mine, theirs] = [this.segments, other.segments];
    let possible = mine.length === theirs.length;
    if (this.rest && other.rest) possible = true;
    else if (this.rest) possible = theirs.length > mine.length;
    else if (other.rest) possible = mine.length > theirs.length;
    if (!possible || (mine[0] === RESERVED) !== (theirs[0] === RESERVED)) return false;
    const shared = Math.min(mine.length, theirs.length);
    for (let i = 0; i < shared; i++) {
      if (mine[i] !== theirs[i] && mine[i] !== ONE && theirs[i] !== ONE) return false;
    }
    return true;
  }
}

/**
 * Return the segments of a valid subject or pattern.
 *
 * @param {string} subject
 */
export function segmentsOf(subject) {
  return subject.split("/").slice(1);
}

/**
 * Return the pattern that a text is, or null when it is a single subject.
 *
 * @param {string} text
 * @returns {Pattern | null}
 * @throws {InvalidSubjectError} when it is neither
 */
export function parseInterest(text) {
  const segments = split(text);
  if (!text.includes("*")) return null;
  if (segments.slice(0, -1).includes(REST)) {
    throw new InvalidSubjectError(
      `Pattern ${shown(text)} has '**' before its end: it may only be the last segment.`,
    );
  }
  if (segments.includes(ONE) || segments[segments.length - 1] === REST) {
    return new Pattern(text, segments);
  }
  return null;
}

/**
 * Check that this is a single subject that can be published to.
 *
 * @param {string} subject
 * @throws {InvalidSubjectError}
 */
export function validateSubject(subject) {
  const segments = split(subject);
  if (segments.includes(ONE) || segments.includes(REST)) {
    throw new InvalidSubjectError(
      `Subject ${shown(subject)} has a wildcard segment ('*' or '**'): one can subscribe to ` +
        "patterns, but publish to single subjects only.",
    );
  }
}

/**
 * Return how many bytes a text has in UTF-8.
 *
 * @param {string} text
 */
export function utf8Bytes(text) {
  let bytes = text.length;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code > 0x7ff) bytes += code >= 0xd800 && code <= 0xdfff ? 1 : 2;
    else if (code > 0x7f) bytes += 1;
  }
  return bytes;
}

/**
 * Return the group in whose line the publications of a subject are numbered.
 *
 * @param {string} subject
 * @param {number} groups
 */
export function groupOf(subject, groups) {
  let crc = 0xffffffff;
  for (const byte of encoder.encode(subject)) crc = CRC[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return ((crc ^ 0xffffffff) >>> 0) % groups;
}

/** CRC-32 of zlib and PNG, a byte at a time. */
const CRC = Int32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  return crc;
});

/** @param {string} text */
function shown(text) {
  const safe = JSON.stringify(text).slice(1, -1);
  return `'${safe.length > SHOWN_MAX ? `${safe.slice(0, SHOWN_MAX)}...` : safe}'`;
}

/** @param {string} text */
function split(text) {
  if (typeof text !== "string") {
    throw new InvalidSubjectError(`A subject is a string like '/a/b', not ${typeof text}.`);
  }
  if (!text) throw new InvalidSubjectError("A subject may not be empty: subjects look like '/a/b'.");
  if (text[0] !== "/") {
    throw new InvalidSubjectError(
      `Subject ${shown(text)} does not start with '/': subjects look like '/a/b'.`,
    );
  }
  const segments = segmentsOf(text);
  if (segments.includes("")) throw new InvalidSubjectError(emptySegment(text, segments));
  if (segments.length > SUBJECT_SEGMENTS_MAX) {
    throw new InvalidSubjectError(
      `Subject ${shown(text)} has ${segments.length} segments: at most ${SUBJECT_SEGMENTS_MAX} ` +
        "are allowed.",
    );
  }
  if (UNPAIRED.test(text)) {
    throw new InvalidSubjectError(`Subject ${shown(text)} has half a surrogate pair in it.`);
  }
  const bytes = utf8Bytes(text);
  if (bytes > SUBJECT_BYTES_MAX) {
    throw new InvalidSubjectError(
      `Subject ${shown(text)} has ${bytes} bytes: at most ${SUBJECT_BYTES_MAX} are allowed.`,
    );
  }
  return segments;
}

const UNPAIRED = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/;

/**
 * @param {string} text
 * @param {string[]} segments
 */
function emptySegment(text, segments) {
  if (text === "/") {
    return "Subject '/' has a single segment, which is empty: subjects look like '/a/b'.";
  }
  if (!segments.slice(0, -1).includes("")) {
    return `Subject ${shown(text)} ends with '/', so its last segment is empty: leave the '/' out.`;
  }
  const number = segments.indexOf("") + 1;
  return `Subject ${shown(text)} has an empty segment (number ${number}): segments are not empty.`;
}
