/**
 * Runs the core where there is the language alone and TextEncoder: no window, document, timers or fetch.
 *
 *     node --experimental-vm-modules bare.mjs
 *
 * Prints what the core does when a server brings it a message.
 */

import { readFile } from "node:fs/promises";
import vm from "node:vm";

const client = new URL("../../src/mdserver/web/client/", import.meta.url);
const context = vm.createContext(Object.assign(Object.create(null), { TextEncoder }));
const modules = new Map();

async function load(url) {
  if (!modules.has(url.href)) {
    const source = await readFile(url, "utf8");
    modules.set(url.href, new vm.SourceTextModule(source, { context, identifier: url.href }));
  }
  return modules.get(url.href);
}

const core = await load(new URL("core/machine.js", client));
const codec = await load(new URL("codec/json.js", client));
for (const module of [core, codec]) {
  await module.link((name, from) => load(new URL(name, from.identifier)));
  await module.evaluate();
}
const { ClientCore } = core.namespace;
const { JsonCodec } = codec.namespace;
const it = new ClientCore(["a:1"], { client: "bare" }, () => new JsonCodec(), () => 0.5);
const connected = { op: "connected", session: "1", member: "m", version: 1, history: "h", groups: 1 };
const message = { op: "message", subject: "/a/b", content: "ü", type: "UPDATE", epoch: 1, seq: 1 };
const events = [{ ...connected, keepalive_ms: 0, message_bytes_max: 1000 }, message];
const { publication, outputs } = it.publish({ op: "publish", subject: "/a/b", content: "1" });
const kinds = [
  ...it.subscribe(["/a/b", "/c/**"]),
  ...it.connect(0),
  ...it.opened(1, 0),
  ...it.received(1, JSON.stringify(events), 1),
  ...outputs,
].map(({ kind }) => kind);
const missing = ["window", "document", "EventSource", "navigator", "fetch", "setTimeout"];
const found = vm.runInContext(`Object.getOwnPropertyNames(globalThis).join()`, context).split(",");
console.log(publication, kinds.join(" "), missing.filter((name) => found.includes(name)).length);
