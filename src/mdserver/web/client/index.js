/** The client of mdserver: see docs/javascript.md. */

export { Client, connect } from "./client.js";
export { RECONNECT_BROWSER, RECONNECT_SERVICE } from "./core/schedule.js";
export * from "./errors.js";
export { Subscription } from "./subscription.js";
/** For encodings beside the two that there are. */
export { checkedEvent } from "./codec/events.js";
