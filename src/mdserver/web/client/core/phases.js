/** The phases of a client's connection, what leads from one to another, and the timers. */

export const TIMER_ATTEMPT = "attempt";
export const TIMER_OPENING = "opening";
export const TIMER_LIVENESS = "liveness";
export const TIMER_MOVE = "move";
export const TIMER_PUBLISH = "publish";

/** @typedef {"idle" | "opening" | "greeting" | "up" | "waiting" | "needs token" | "stopped"} Phase */

/**
 * The phase that follows an event in a phase. A missing key is a use of the client that the protocol
 * does not allow; `disconnect` always is.
 *
 * @type {Record<Phase, Record<string, Phase>>}
 */
export const TRANSITIONS = {
  idle: { open: "opening" },
  waiting: { open: "opening" },
  "needs token": { open: "opening" },
  stopped: { open: "opening" },
  opening: { opened: "greeting", retry: "waiting", stop: "stopped" },
  greeting: { connected: "up", retry: "waiting", token: "needs token", stop: "stopped" },
  up: { retry: "waiting", token: "needs token", stop: "stopped" },
};
