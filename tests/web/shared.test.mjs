/**
 * Tabs that share a connection, against a running server; ports stand for a SharedWorker.
 *
 *     MDSERVER=127.0.0.1:8800 node --experimental-websocket --test shared.test.mjs
 */

import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { describe, test } from "node:test";
import { BinaryCodec } from "../../src/mdserver/web/client/codec/binary.js";
import { connect } from "../../src/mdserver/web/client/index.js";
import { Ports } from "../../src/mdserver/web/client/tabs/ports.js";

const server = process.env.MDSERVER;
let subjects = 0;
const fresh = (name = "x") => `/shared/${process.pid}-${(subjects += 1)}/${name}`;

/** As browsers have it: one worker for each address and name, and a port for each page. */
const workers = new Map();
class Worker {
  constructor(url, { name }) {
    if (!workers.has(name)) workers.set(name, new Ports(null));
    const { port1, port2 } = new MessageChannel();
    this.port = port1;
    Worker.latest = port1;
    workers.get(name).connect(port2);
  }
}
globalThis.SharedWorker = Worker;

let names = 0;
/** Tabs of one connection, which are closed with their test. */
async function tabs(t, count, options) {
  const shared = `test ${(names += 1)}`;
  const opened = [];
  for (let i = 0; i < count; i++) opened.push(await tab(t, shared, options));
  return opened;
}

async function tab(t, shared, options) {
  const client = await connect(server, { shared, reconnect: "service", ...options });
  t.after(() => client.close());
  return client;
}

async function take(subscription, count) {
  const messages = [];
  while (messages.length < count) messages.push((await subscription.next()).value);
  return messages;
}
const contents = (messages) => messages.map(({ content }) => content);

/** What a client tells from now on. */
function statuses(client) {
  const told = [];
  client.addEventListener("status", ({ detail: { status, subject } }) => {
    told.push(subject ? `${status} ${subject}` : status);
  });
  return told;
}

/** Have a worker forget a tab, which hears that. */
function cutOff(port) {
  port.postMessage({ op: "bye" });
  port.onmessage({ data: { gone: true } });
}

/** Have another class stand for SharedWorker until the end of a test. */
function replaceWorker(t, Class) {
  globalThis.SharedWorker = Class;
  t.after(() => (globalThis.SharedWorker = Worker));
}

/** Have no worker be found until the end of a test; return when one was missed. */
function loseWorker(t) {
  return new Promise((resolve) => {
    class Missing {
      port = new MessageChannel().port1;
      constructor() {
        setImmediate(() => {
          this.onerror();
          setImmediate(resolve);
        });
      }
    }
    replaceWorker(t, Missing);
  });
}

for (const options of [{}, { codec: BinaryCodec }, { transport: "http" }]) {
  describe(JSON.stringify({ binary: !!options.codec, transport: options.transport }), () => {
    test("each tab has its snapshot and history, and all that is live once", async (t) => {
      const [first, second] = await tabs(t, 2, options);
      assert.equal(first.shared, true);
      const subject = fresh();
      for (const content of ["1", "2", "3"]) await first.publish(subject, content);
      const one = first.subscribe(subject);
      await one.caughtUp();
      const two = second.subscribe(subject, { history: 2 });
      await two.caughtUp();
      const three = second.subscribe(subject.replace("/x", "/*"));
      await three.caughtUp();
      await second.publish(subject, "4");
      assert.deepEqual(contents(await take(one, 2)), ["3", "4"]);
      assert.deepEqual(contents(await take(two, 3)), ["2", "3", "4"]);
      const both = await take(three, 2);
      assert.deepEqual(contents(both), ["3", "4"]);
      assert.deepEqual(both.map(({ type }) => type), ["SNAPSHOT", "UPDATE"]);
      assert.deepEqual(contents(await second.snapshot(subject)), ["4"]);
    });

    test("bytes, fields and results go to the tab whose they are", async (t) => {
      const [first, second] = await tabs(t, 2, options);
      const subject = fresh();
      const told = [[], []];
      [first, second].forEach((client, i) => {
        client.addEventListener("status", ({ detail }) => told[i].push(detail));
      });
      const subscription = second.subscribe(subject);
      await subscription.confirmed();
      const result = await first.publish(subject, new Uint8Array([0, 200]), {
        fields: { bid: "1" },
        closure: "mine",
      });
      assert.equal(result.status, "PUBLISH_OK");
      const [message] = await take(subscription, 1);
      assert.deepEqual([...message.content], [0, 200]);
      assert.deepEqual([message.fields, message.position], [{ bid: "1" }, { epoch: result.epoch, seq: 1 }]);
      assert.deepEqual(told[0].map(({ status, closure }) => [status, closure]), [["PUBLISH_OK", "mine"]]);
      assert.deepEqual(told[1], []);
    });
  });
}

test("requests are answered from tab to tab", async (t) => {
  const [asking, answering] = await tabs(t, 2);
  const subject = fresh();
  const service = answering.subscribe(subject, (question) => answering.reply(question, "12:00"));
  await service.confirmed();
  assert.equal((await asking.request(subject, "now?", { timeoutMs: 10_000 })).content, "12:00");
});

test("a tab that pauses is brought what it missed, and another one is not held back", async (t) => {
  const [first, second] = await tabs(t, 2);
  const subject = fresh();
  const [one, two] = [first.subscribe(subject), second.subscribe(subject)];
  await Promise.all([one.confirmed(), two.confirmed()]);
  first.pause();
  for (const content of ["1", "2", "3"]) await second.publish(subject, content);
  assert.deepEqual(contents(await take(two, 3)), ["1", "2", "3"]);
  first.resume();
  await second.publish(subject, "4");
  assert.deepEqual(contents(await take(one, 4)), ["1", "2", "3", "4"]);
});

test("when all tabs pause the server sends nothing, and brings it afterwards", async (t) => {
  const [first, second] = await tabs(t, 2);
  const other = await connect(server);
  t.after(() => other.close());
  const subject = fresh();
  const [one, two] = [first.subscribe(subject), second.subscribe(subject)];
  await Promise.all([one.confirmed(), two.confirmed()]);
  await other.publish(subject, "0");
  await Promise.all([take(one, 1), take(two, 1)]);
  first.pause();
  second.pause();
  await first.publish(fresh("after the pauses"), "");
  for (const content of ["1", "2"]) await other.publish(subject, content);
  second.resume();
  const recovered = await take(two, 2);
  assert.deepEqual(recovered.map(({ content, type }) => [content, type]), [["1", "RECOVERED"], ["2", "RECOVERED"]]);
  first.resume();
  assert.deepEqual(contents(await take(one, 2)), ["1", "2"]);
});

test("a tab that disconnects leaves the others connected, and gets all when it comes back", async (t) => {
  const [first, second] = await tabs(t, 2);
  const subject = fresh();
  const [one, two] = [first.subscribe(subject), second.subscribe(subject)];
  await Promise.all([one.confirmed(), two.confirmed()]);
  first.disconnect();
  assert.equal(first.phase, "idle");
  await second.publish(subject, "1");
  assert.deepEqual(contents(await take(two, 1)), ["1"]);
  first.connect();
  await first.connected();
  assert.deepEqual(contents(await take(one, 1)), ["1"]);
  second.disconnect();
  first.disconnect();
  second.connect();
  first.connect();
  await first.publish(subject, "2");
  assert.deepEqual(contents(await take(one, 1)), ["2"]);
  assert.deepEqual(contents(await take(two, 1)), ["2"]);
});

test("a slow tab slows no other, and is told when messages were dropped for it", async (t) => {
  const shared = `test ${(names += 1)}`;
  const slow = await tab(t, shared, { bufferMessages: 10 });
  const quick = await tab(t, shared);
  const told = [];
  for (const client of [slow, quick]) {
    client.addEventListener("status", ({ detail }) => told.push([client === slow, detail.status]));
  }
  const subject = fresh();
  const [one, two] = [slow.subscribe(subject), quick.subscribe(subject)];
  await Promise.all([one.confirmed(), two.confirmed()]);
  for (let i = 1; i <= 100; i++) await quick.publish(subject, `${i}`);
  assert.deepEqual(contents(await take(two, 100)), Array.from({ length: 100 }, (_, i) => `${i + 1}`));
  assert.deepEqual(told, []);
  const numbers = [];
  for await (const { content } of one) {
    numbers.push(Number(content));
    if (content === "100") break;
  }
  assert.deepEqual(numbers, [...new Set(numbers)].sort((a, b) => a - b), "in order and once");
  assert.deepEqual(numbers.slice(0, 10), Array.from({ length: 10 }, (_, i) => i + 1));
  assert(numbers.length < 100);
  assert.deepEqual(told[0], [true, "DATA_RESYNC"]);
  assert(told.every(([isSlow, status]) => isSlow || status === "DATA_SYNC"), String(told));
});

test("a tab that is unknown to the worker begins again", async (t) => {
  const [first, second] = await tabs(t, 2);
  const port = Worker.latest;
  const subject = fresh();
  const subscription = second.subscribe(subject);
  await subscription.confirmed();
  await first.publish(subject, "1");
  assert.deepEqual(contents(await take(subscription, 1)), ["1"]);
  const told = statuses(second);
  cutOff(port);
  await subscription.caughtUp();
  assert.deepEqual(told, ["SERVER_DOWN", `DATA_RESYNC ${subject}`, "SERVER_UP"]);
  await first.publish(subject, "2");
  assert.deepEqual(contents(await take(subscription, 1)), ["2"], "what was there comes once");
});

for (const others of [0, 1]) {
  test(`a tab that finds no other worker says so, and tries again; beside ${others}`, async (t) => {
    const shared = `test ${(names += 1)}`;
    const client = await tab(t, shared);
    const port = Worker.latest;
    if (others) await tab(t, shared);
    const [subject, another] = [fresh(), fresh()];
    const subscription = client.subscribe(subject);
    await subscription.confirmed();
    const told = statuses(client);
    const failed = loseWorker(t);
    const open = client.publish(subject, "1");
    cutOff(port);
    await assert.rejects(open, {
      name: "PublishError",
      message: /the tab was cut off from the shared connection/,
    });
    await failed;
    assert.deepEqual([client.phase, told], ["waiting", ["SERVER_DOWN"]]);
    const later = Promise.all(["2", "3"].map((content) => client.publish(another, content)));
    const begun = client.subscribe(another, { history: 2 });
    globalThis.SharedWorker = Worker;
    client.connect();
    for (const { status } of await later) assert.equal(status, "PUBLISH_OK");
    await begun.confirmed();
    assert.deepEqual([client.phase, told], ["up", ["SERVER_DOWN", `DATA_RESYNC ${subject}`, "SERVER_UP"]]);
    assert.deepEqual(contents(await take(begun, 2)), ["2", "3"]);
  });
}

test("what is published while there is no worker fails with the client", async (t) => {
  const [client] = await tabs(t, 1);
  const failed = loseWorker(t);
  cutOff(Worker.latest);
  await failed;
  const open = client.publish(fresh(), "1");
  const [outcome] = await Promise.allSettled([open, client.close()]);
  assert.equal(outcome.reason?.name, "PublishError");
});

test("a tab that is closed while it waits for another worker does not join it", { timeout: 60_000 }, async (t) => {
  const [client] = await tabs(t, 1);
  const opened = new Promise((resolve) => {
    class Slow {
      constructor() {
        const { port1, port2 } = new MessageChannel();
        this.port = port1;
        resolve(port2);
      }
    }
    replaceWorker(t, Slow);
  });
  cutOff(Worker.latest);
  const worker = await opened;
  const said = [];
  worker.on("message", (data) => said.push(data));
  const left = once(worker, "close");
  await client.close();
  worker.postMessage({ lock: null });
  await left;
  assert.deepEqual(said, []);
});

test("tabs share when they give the same options, in whatever order, and no name tells these", async (t) => {
  const before = workers.size;
  const shared = `test ${(names += 1)}`;
  const one = { maxDelayMs: 100, timeIntervalMs: 100 };
  const two = { timeIntervalMs: 100, maxDelayMs: 100 };
  await tab(t, shared, { keepaliveMs: 20_000, externalToken: "sesame", reconnect: one });
  await tab(t, shared, { reconnect: two, externalToken: "sesame", keepaliveMs: 20_000 });
  assert.equal(workers.size, before + 1);
  await tab(t, shared, { reconnect: two, externalToken: "another", keepaliveMs: 20_000 });
  assert.equal(workers.size, before + 2);
  assert.doesNotMatch([...workers.keys()].join(), /sesame/);
});

test("without SharedWorker a tab has a connection of its own, and says so", async (t) => {
  globalThis.SharedWorker = undefined;
  t.after(() => (globalThis.SharedWorker = Worker));
  const client = await connect(server, { shared: true });
  t.after(() => client.close());
  const [{ detail }] = await once(client, "status");
  assert.deepEqual(
    [client.shared, detail.status, detail.info],
    [false, "NOT_SHARED", "this tab has a connection of its own: there is no SharedWorker here"],
  );
  assert.equal((await client.publish(fresh(), "1")).status, "PUBLISH_OK");
});

test("what cannot be shared is refused in a sentence", async () => {
  await assert.rejects(connect(server, { shared: true, publisher: "p" }), {
    name: "ArgumentError",
    message: "publisher cannot be given with shared: it would be that of all tabs",
  });
  await assert.rejects(connect("127.0.0.1:99999", { shared: true }), { name: "ArgumentError" });
});

test("where nobody listens each tab hears so", async () => {
  const closed = net.createServer().listen(0, "127.0.0.1");
  await once(closed, "listening");
  const address = `127.0.0.1:${closed.address().port}`;
  closed.close();
  await assert.rejects(connect(address, { shared: true, connectTimeoutMs: 300 }), {
    name: "ConnectError",
    message: new RegExp(`^no server was reached in 0.3 s: ${address}: `),
  });
});
