/** What an application hands to the client: checked at once, with a sentence that says what fits. */

import { ArgumentError } from "./errors.js";
import { validateSubject } from "./core/subjects.js";

/**
 * @typedef {object} PublishOptions
 * @property {Record<string, string>} [fields]
 * @property {string} [closure] comes back with the result, and goes out with the message
 * @property {boolean} [retained] false: the message does not change the snapshot
 * @property {"GUARANTEED" | "STANDARD"} [qos]
 * @property {boolean} [compressed] the content is compressed (zlib), as `deflated` gives it
 * @property {string} [replySubject]
 * @property {number} [timeoutMs]
 */

/** @type {Record<keyof PublishOptions, [(value: any) => boolean, string]>} */
const PUBLISH_OPTIONS = {
  fields: [isFields, "an object of names with a string each, such as {bid: '191'}"],
  closure: [isText, "a string"],
  retained: [isFlag, "true or false"],
  qos: [(value) => value === "GUARANTEED" || value === "STANDARD", "'GUARANTEED' or 'STANDARD'"],
  compressed: [isFlag, "true or false"],
  replySubject: [isText, "a subject such as '/replies/1'"],
  timeoutMs: [isCount, "a number of milliseconds"],
};

/** @param {unknown} value */
export function isText(value) {
  return typeof value === "string";
}

/** @param {unknown} value */
export function isFlag(value) {
  return typeof value === "boolean";
}

/** @param {unknown} value */
export function isCount(value) {
  return typeof value === "number" && Number.isFinite(value) && value >= 0;
}

/** @param {unknown} value */
export function isFunction(value) {
  return typeof value === "function";
}

/** @param {any} value */
export function isFields(value) {
  return (
    typeof value === "object" &&
    value !== null &&
    !Array.isArray(value) &&
    Object.values(value).every(isText)
  );
}

/**
 * Check options by a table of what each has to be; undefined stands for an absent one.
 *
 * @param {string} what the call that takes them
 * @param {any} options
 * @param {Record<string, [(value: any) => boolean, string]>} table
 * @throws {ArgumentError}
 */
export function checkOptions(what, options, table) {
  if (typeof options !== "object" || options === null) {
    throw new ArgumentError(`the options of ${what} are an object, not ${shown(options)}`);
  }
  for (const [name, value] of Object.entries(options)) {
    if (!Object.hasOwn(table, name)) {
      throw new ArgumentError(`${what} has no option '${name}'; there are ${Object.keys(table).join(", ")}`);
    }
    const [fits, expected] = table[name];
    if (value !== undefined && !fits(value)) {
      throw new ArgumentError(`${name} of ${what} is ${expected}, not ${shown(value)}`);
    }
  }
}

/**
 * Return the `publish` command for what an application gave.
 *
 * @param {string} subject
 * @param {string | Uint8Array} content
 * @param {PublishOptions} options
 * @throws {ArgumentError}
 */
export function publication(subject, content, options) {
  validateSubject(subject);
  if (!isText(content) && !(content instanceof Uint8Array)) {
    throw new ArgumentError(
      `the content is a string or a Uint8Array, not ${shown(content)}; numbers and objects become ` +
        "text by String(...) or JSON.stringify(...)",
    );
  }
  checkOptions("publish", options, PUBLISH_OPTIONS);
  const { fields, closure, retained, qos, compressed, replySubject } = options;
  return {
    op: "publish",
    subject,
    content,
    fields: fields && Object.keys(fields).length ? { ...fields } : undefined,
    closure,
    retained: retained === false ? false : undefined,
    qos: qos === "STANDARD" ? qos : undefined,
    compressed: compressed || undefined,
    reply_subject: replySubject,
  };
}

/**
 * Return a list of texts that was given as such, or as one text.
 *
 * @param {string} what
 * @param {unknown} given
 * @param {string} example
 * @returns {string[]}
 */
export function texts(what, given, example) {
  const list = Array.isArray(given) ? given : [given];
  if (!list.length || !list.every((one) => isText(one) && one)) {
    throw new ArgumentError(`${what} are a text or a list such as ['${example}'], not ${shown(given)}`);
  }
  return list;
}

/** @param {unknown} value */
export function shown(value) {
  if (isFunction(value)) return "a function";
  const text = typeof value === "string" ? `'${value}'` : (JSON.stringify(value) ?? String(value));
  return text.length > 60 ? `${text.slice(0, 60)}...` : text;
}
