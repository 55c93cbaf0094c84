/** The SharedWorker of tabs that share a connection (docs/javascript.md); started by `tabs.js`. */

import { holdLock } from "./tabs/locks.js";
import { Ports } from "./tabs/ports.js";

const ports = holdLock("worker").then(({ lock }) => new Ports(lock));

globalThis.addEventListener("connect", async (event) => {
  const [port] = /** @type {MessageEvent} */ (event).ports;
  (await ports).connect(port);
});
