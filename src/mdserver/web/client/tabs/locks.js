/**
 * How one context of a browser learns that another one has ended, however it ended.
 *
 * Each holds a Web Lock of its own as long as it lives; who waits for that lock gets it at the end.
 * Only pages over TLS or from this machine have them: without, there are heartbeats.
 */

/** @typedef {{lock: string | null, free: () => void}} Held */

/**
 * Hold a lock with a name that nobody else has, until `free` is called or this context ends.
 *
 * @param {string} kind
 * @returns {Promise<Held>}
 */
export function holdLock(kind) {
  const locks = globalThis.navigator?.locks;
  const none = { lock: null, free: () => {} };
  if (!locks) return Promise.resolve(none);
  const lock = `mdserver ${kind} ${crypto.randomUUID()}`;
  return new Promise((resolve) => {
    const held = () => new Promise((free) => resolve({ lock, free: () => free(undefined) }));
    locks.request(lock, held).catch(() => resolve(none));
  });
}

/**
 * Call back once the holder of a lock has ended; never, when it holds none.
 *
 * @param {string | null} lock
 * @param {() => void} call
 * @returns {() => void} ends the wait
 */
export function whenFree(lock, call) {
  const waiting = new AbortController();
  const { signal } = waiting;
  if (lock) globalThis.navigator.locks.request(lock, { signal }, call).catch(() => {});
  return () => waiting.abort();
}
