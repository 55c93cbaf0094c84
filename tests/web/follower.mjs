/**
 * Publishes numbers to several subjects through one client and follows them with another, until told
 * to end; then says what was missing, repeated or out of order, by position and by content.
 */

import { Client, connect } from "../../src/mdserver/web/client/index.js";
import { line, tell } from "./printing.mjs";

const [transport, ...servers] = process.argv.slice(2);
const SUBJECTS = ["/load/a", "/load/b", "/load/c"];
const options = { transport, reconnect: "service" };

const publisher = await connect(servers, options);
const follower = new Client(servers, options);
follower.addEventListener("status", ({ detail }) => {
  if (detail.status === "SERVER_UP") tell("connected", { server: detail.info });
});
const last = new Map();
let [seen, repeated, outOfOrder, failed] = [0, 0, 0, 0];
const contents = new Set();
const subscription = follower.subscribe("/load/*", (message) => {
  const { subject, position, content } = message;
  const before = last.get(subject) ?? { epoch: 0, seq: 0 };
  if (contents.has(content)) repeated += 1;
  if (position.seq !== before.seq + 1 || position.epoch < before.epoch) outOfOrder += 1;
  contents.add(content);
  last.set(subject, position);
  seen += 1;
  if (seen % 100 === 0) tell("progress", { seen });
});
await subscription.confirmed();

let [published, ending] = [0, false];
const done = [];
const pump = setInterval(() => {
  for (const subject of SUBJECTS) {
    published += 1;
    const result = publisher.publish(subject, `${published}`);
    done.push(result.catch((error) => { failed += 1; tell("failed", { reason: error.message }); }));
  }
}, 5);
while ((await line()) !== "end");
clearInterval(pump);
await Promise.all(done);
const deadline = performance.now() + 30_000;
while (seen < published && performance.now() < deadline) {
  await new Promise((resolve) => setTimeout(resolve, 20));
}
tell("end", { published, seen, failed, missing: published - contents.size, repeated, outOfOrder });
await Promise.all([publisher.close(), follower.close()]);
