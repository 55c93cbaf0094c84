/** A message as an application sees it. */

/**
 * One message.
 *
 * `content` is text when it was published as text, bytes otherwise; compressed content is given as
 * it came (`mdserver-client/compression` has what decompresses it). `position` is null for STANDARD messages. `match` is the
 * pattern that it came through, undefined when the subject itself is subscribed.
 *
 * @typedef {object} Message
 * @property {string} subject
 * @property {string | Uint8Array} content
 * @property {Record<string, string>} fields
 * @property {"UPDATE" | "SNAPSHOT" | "RECOVERED" | "HISTORICAL"} type
 * @property {{epoch: number, seq: number} | null} position
 * @property {"GUARANTEED" | "STANDARD"} qos
 * @property {boolean} retained
 * @property {string} [closure]
 * @property {string} [replySubject]
 * @property {boolean} compressed
 * @property {string} [match]
 */

/**
 * Return the message of an event.
 *
 * @param {import("./codec/events.js").MessageEvent} event
 * @returns {Message}
 */
export function messageOf(event) {
  return {
    subject: event.subject,
    content: event.content,
    fields: event.fields ?? {},
    type: event.type,
    position: event.seq ? { epoch: event.epoch, seq: event.seq } : null,
    qos: event.qos ?? "GUARANTEED",
    retained: event.retained ?? true,
    closure: event.closure,
    replySubject: event.reply_subject,
    compressed: event.compressed ?? false,
    match: event.match,
  };
}
