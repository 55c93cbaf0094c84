/** Numbers of the client, each with its unit; the same as in `mdserver/limits.py`. */

export const PROTOCOL_VERSION = 1;

export const SUBJECT_BYTES_MAX = 1024;
export const SUBJECT_SEGMENTS_MAX = 32;
export const SUBJECTS_PER_COMMAND_MAX = 10_000;
export const FIELDS_MAX = 256;

export const CLOSE_NORMAL = 1000;
export const CLOSE_GOING_AWAY = 1001;
export const CLOSE_WITHOUT_HANDSHAKE = 1006;
export const CLOSE_MOVED = 4000;
export const CLOSE_SLOW_CONSUMER = 4001;
export const CLOSE_NO_QUORUM = 4002;
export const CLOSE_SHUTTING_DOWN = 4003;
export const CLOSE_KEEPALIVE_MISSED = 4004;
export const CLOSE_TOKEN_EXPIRED = 4005;
export const CLOSE_PROTOCOL_ERROR = 4100;

/** Publications without a result; a server keeps so many numbers of a publisher in a group. */
export const PUBLICATIONS_MAX = 1000;
export const POSITIONS_MAX = 1_000_000;
/** Bytes of one command: a server takes at least 64 KiB. */
export const COMMAND_BYTES_MAX = 48 * 1024;
/** Characters of small commands in one message: a bad link gets some of it through. */
export const JOIN_CHARS_MAX = 16 * 1024;
export const OPEN_TIMEOUT_MS = 10_000;
/** Silence of a server after which a client asks for a word, and how long it waits for one. */
export const SILENCE_MS = 5000;
export const PONG_MS = 5000;
/** A timer that is so late means that the client itself stood still. */
export const LATE_MS = 1000;
export const PUBLISH_RETRY_MS = 500;
export const MOVE_JITTER_MS = 500;
/** A connection that lasted so long was a good one. */
export const STABLE_MS = 10_000;
export const RECONNECT_RATE_WINDOW_MS = 180_000;
export const CLOSE_TIMEOUT_MS = 2000;
export const DRAIN_TIMEOUT_MS = 5000;
export const PAYLOAD_BYTES_MAX = 16 * 1024 * 1024;
export const NOTICES_MAX = 1000;
/** Messages that wait in a subscription; beyond, it is held at the server and recovered. */
export const BUFFER_MESSAGES = 10_000;
export const REQUEST_TIMEOUT_MS = 30_000;
