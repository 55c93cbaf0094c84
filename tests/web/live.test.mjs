/**
 * The client as its users have it, against a running server.
 *
 *     MDSERVER=127.0.0.1:8800 node --experimental-websocket --test live.test.mjs
 */

import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import net from "node:net";
import { describe, test } from "node:test";
import { BinaryCodec } from "../../src/mdserver/web/client/codec/binary.js";
import { deflated, inflated } from "../../src/mdserver/web/client/compression.js";
import { ArgumentError, Client, connect } from "../../src/mdserver/web/client/index.js";

const server = process.env.MDSERVER;
let subjects = 0;
/** A subject that no other test uses. */
const fresh = (name = "x") => `/js/${process.pid}-${(subjects += 1)}/${name}`;

/** A client that stands, and is closed with its test. */
async function begin(t, options) {
  const client = await connect(server, options);
  t.after(() => client.close());
  return client;
}

async function take(subscription, count) {
  const messages = [];
  while (messages.length < count) messages.push((await subscription.next()).value);
  return messages;
}

const forms = [
  { transport: "websocket" },
  { transport: "websocket", codec: BinaryCodec },
  { transport: "http" },
  { transport: "http", codec: BinaryCodec },
  { transport: "sse" },
  { transport: "sse", codec: BinaryCodec },
];
for (const options of forms) {
  const form = `${options.transport}, ${options.codec ? "binary" : "JSON"}`;
  describe(form, () => {
    test("what is published arrives, whole", async (t) => {
      const client = await begin(t, options);
      const subject = fresh();
      const subscription = client.subscribe(subject);
      await subscription.confirmed();
      const result = await client.publish(subject, "ü☃𝄞", { fields: { bid: "191" }, closure: "c" });
      assert.deepEqual([result.status, result.epoch > 0, result.seq], ["PUBLISH_OK", true, 1]);
      await client.publish(subject, new Uint8Array([0, 200, 255]), { retained: false });
      await client.publish(subject, "once", { qos: "STANDARD", replySubject: "/js/answers" });
      const [text, binary, standard] = await take(subscription, 3);
      assert.deepEqual(
        [text.content, text.fields, text.closure, text.position, text.type],
        ["ü☃𝄞", { bid: "191" }, "c", { epoch: result.epoch, seq: 1 }, "UPDATE"],
      );
      assert.deepEqual([...binary.content], [0, 200, 255]);
      assert.equal(binary.retained, false);
      assert.deepEqual([standard.position, standard.qos], [null, "STANDARD"]);
      assert.equal(standard.replySubject, "/js/answers");
    });

    test("thousands at once arrive in order", async (t) => {
      const client = await begin(t, options);
      const subject = fresh();
      const subscription = client.subscribe(subject);
      await subscription.confirmed();
      const results = Array.from({ length: 3000 }, (_, i) => client.publish(subject, `${i}`));
      await Promise.all(results);
      const contents = (await take(subscription, 3000)).map((message) => Number(message.content));
      assert.deepEqual(contents, Array.from({ length: 3000 }, (_, i) => i));
    });
  });
}

test("overlapping subscriptions each get every message once", async (t) => {
  const client = await begin(t);
  const subject = fresh("b");
  const pattern = subject.replace(/b$/, "**");
  await client.publish(subject, "before");
  const all = client.subscribe(pattern);
  const called = [];
  const one = client.subscribe(subject, (message) => called.push(message.content));
  const twice = client.subscribe([subject]);
  await Promise.all([all.caughtUp(), one.caughtUp(), twice.caughtUp()]);
  for (const content of ["1", "2", "3"]) await client.publish(subject, content);
  const wanted = ["before", "1", "2", "3"];
  for (const each of [all, twice]) {
    assert.deepEqual((await take(each, 4)).map((message) => message.content), wanted);
  }
  assert.deepEqual(called, wanted);
  one.end();
  twice.end();
  assert.deepEqual(client.subjects, [pattern]);
});

test("leaving the loop ends the subscription", async (t) => {
  const client = await begin(t);
  const subject = fresh();
  await client.publish(subject, "1");
  for await (const message of client.subscribe(subject)) {
    assert.equal(message.type, "SNAPSHOT");
    break;
  }
  assert.deepEqual(client.subjects, []);
});

test("history, snapshots and conflation", async (t) => {
  const client = await begin(t);
  const subject = fresh("h");
  for (const content of ["1", "2", "3"]) await client.publish(subject, content);
  const history = await take(client.subscribe(subject, { history: 2 }), 2);
  assert.deepEqual(
    history.map((message) => [message.content, message.type]),
    [
      ["2", "HISTORICAL"],
      ["3", "HISTORICAL"],
    ],
  );
  const snapshots = await client.snapshot(subject.replace(/h$/, "*"));
  assert.deepEqual(snapshots.map((message) => [message.subject, message.content]), [[subject, "3"]]);
  assert.deepEqual(await client.snapshot(fresh("nothing")), []);
  const conflated = new Client(server);
  const slowed = conflated.subscribe(subject, { conflationMs: 500 });
  await slowed.caughtUp();
  for (let i = 4; i < 50; i++) client.publish(subject, `${i}`);
  await client.publish(subject, "50");
  const seen = [];
  for await (const message of slowed) {
    seen.push(message.content);
    if (message.content === "50") break;
  }
  assert(seen.length < 10, `${seen.length} messages in spite of conflation`);
  await conflated.close();
});

test("a request has its reply", async (t) => {
  const service = await begin(t);
  const client = await begin(t);
  const subject = fresh("time");
  const questions = service.subscribe(subject, (message) => service.reply(message, "12:00"));
  await questions.confirmed();
  assert.equal((await client.request(subject, "?")).content, "12:00");
  const nobody = client.request(fresh("nobody"), "?", { timeoutMs: 50 });
  await assert.rejects(nobody, { name: "TimeoutError", message: /no reply to the request .* 0\.05 s/ });
});

test("compressed content comes back as it was", async (t) => {
  const client = await begin(t);
  const subject = fresh();
  await client.publish(subject, await deflated("long ".repeat(1000)), { compressed: true });
  const [message] = await client.snapshot(subject);
  assert(message.content.length < 200);
  assert.equal(await inflated(message), "long ".repeat(1000));
  await assert.rejects(inflated({ ...message, content: new Uint8Array([1, 2]) }), {
    message: /^content that cannot be decompressed/,
  });
});

test("pause keeps what comes, resume brings it", async (t) => {
  const client = await begin(t);
  const other = await begin(t);
  const subject = fresh();
  const subscription = client.subscribe(subject);
  await subscription.confirmed();
  await other.publish(subject, "0");
  await take(subscription, 1);
  client.pause();
  for (const content of ["1", "2"]) await other.publish(subject, content);
  client.resume();
  assert.deepEqual((await take(subscription, 2)).map((message) => message.content), ["1", "2"]);
});

test("a slow application misses nothing and holds back nobody", async (t) => {
  const client = await begin(t, { bufferMessages: 10 });
  const other = await begin(t);
  const [slow, quick] = [fresh("slow"), fresh("quick")];
  const [held, flowing] = [client.subscribe(slow), client.subscribe(quick)];
  await Promise.all([held.confirmed(), flowing.confirmed()]);
  for (let i = 0; i < 100; i++) await other.publish(slow, `${i}`);
  await other.publish(quick, "through");
  assert.equal((await flowing.next()).value.content, "through");
  const contents = (await take(held, 100)).map((message) => Number(message.content));
  assert.deepEqual(contents, Array.from({ length: 100 }, (_, i) => i));
});

/** Carries connections to the server but those whose first bytes are refused, which it counts. */
async function proxyRefusing(t, isRefused) {
  const { host, port } = new URL(`http://${server}`);
  const proxy = net.createServer((near) => {
    near.on("error", () => {});
    near.once("data", (head) => {
      if (isRefused(head.toString("latin1"))) {
        proxy.refused += 1;
        near.end("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        return;
      }
      proxy.carried += 1;
      const far = net.connect({ host: host.split(":")[0], port: Number(port) });
      far.on("error", () => near.destroy());
      near.on("close", () => far.destroy());
      far.write(head);
      near.pipe(far).pipe(near);
    });
  });
  Object.assign(proxy, { refused: 0, carried: 0 });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  t.after(() => proxy.close());
  return proxy;
}

const isUpgrade = (head) => /^upgrade:/im.test(head);
const isStream = (head) => /^accept: *application\/x-ndjson/im.test(head);
for (const { name, isRefused, refused } of [
  { name: "no WebSocket is passed over HTTP", isRefused: isUpgrade, refused: 1 },
  {
    name: "neither a WebSocket nor a stream is passed by server-sent events",
    isRefused: (head) => isUpgrade(head) || isStream(head),
    refused: 2,
  },
]) {
  test(`a proxy that lets through ${name}`, async (t) => {
    const proxy = await proxyRefusing(t, isRefused);
    const client = await connect(`127.0.0.1:${proxy.address().port}`, { reconnect: "service" });
    t.after(() => client.close());
    const subject = fresh();
    const subscription = client.subscribe(subject);
    await subscription.confirmed();
    await client.publish(subject, "passed");
    assert.equal((await subscription.next()).value.content, "passed");
    assert.equal(proxy.refused, refused);
    assert(proxy.carried > 1);
    client.disconnect();
    client.connect();
    await client.connected();
    assert.equal(proxy.refused, refused, "what has worked is tried first");
  });
}

test("any number may wait until a subscription has caught up, by few questions", async (t) => {
  let questions = 0;
  class Counting extends WebSocket {
    send(payload) {
      questions += payload.split('"caught_up":true').length - 1;
      super.send(payload);
    }
  }
  const client = await begin(t, { WebSocket: Counting });
  const subject = fresh();
  await client.publish(subject, "there");
  const subscription = client.subscribe(subject);
  await Promise.all(Array.from({ length: 60 }, () => subscription.caughtUp()));
  assert.equal((await subscription.next()).value.content, "there");
  assert(questions <= 2, `${questions} questions, of which a server takes 16 at once`);
});

test("statuses are events", async () => {
  const client = new Client(server);
  const [up] = await once(client, "status");
  assert.equal(up.detail.status, "SERVER_UP");
  const told = once(client, "status");
  await client.publish(fresh(), "1", { closure: "mine" });
  const [{ detail }] = await told;
  assert.deepEqual([detail.status, detail.closure], ["PUBLISH_OK", "mine"]);
  await client.close();
});

test("mistakes are told in a sentence, and at once", async (t) => {
  const client = await begin(t);
  const mistakes = [
    [() => client.subscribe("stocks"), /'stocks' does not start with '\/'/],
    [() => client.subscribe(7), /subjects are a text or a list such as \['\/a\/b'\], not 7/],
    [() => client.subscribe("/a/b", { hystery: 3 }), /subscribe has no option 'hystery'; there are/],
    [() => client.subscribe("/a/b", { history: "3" }), /history of subscribe is a whole number/],
    [() => client.subscribe("/a/b", {}, "show"), /callback of subscribe is a function, not 'show'/],
    [() => client.publish("/a/*", "1"), /publish to single subjects only/],
    [() => client.publish("/a/b", { bid: 1 }), /the content is a string or a Uint8Array, not/],
    [() => client.publish("/a/b", "1", { fields: { bid: 1 } }), /fields of publish is an object of/],
    [() => new Client("127.0.0.1:99999"), /'127.0.0.1:99999' is no address of a server/],
    [() => new Client([]), /servers are a text or a list such as/],
    [() => new Client(server, { encoding: "json" }), /a client has no option 'encoding'/],
  ];
  for (const [call, message] of mistakes) {
    await assert.rejects(
      async () => call(),
      (error) => error instanceof ArgumentError && message.test(error.message),
      String(message),
    );
  }
});

test("where something else listens one hears so", async (t) => {
  const other = http.createServer((_, answer) => {
    answer.writeHead(404, { "content-type": "text/html" }).end("<p>Not found</p>");
  });
  other.listen(0, "127.0.0.1");
  await once(other, "listening");
  t.after(() => other.close());
  const address = `127.0.0.1:${other.address().port}`;
  await assert.rejects(connect(address, { connectTimeoutMs: 1000 }), {
    name: "ConnectError",
    message: `no server was reached in 1 s: ${address}: HTTP 404 and a page came back: is it the address of an mdserver?`,
  });
});

test("a subscription that begins after the time for a connection fails as well", async () => {
  const silent = net.createServer().listen(0, "127.0.0.1");
  await once(silent, "listening");
  const client = new Client(`127.0.0.1:${silent.address().port}`, { connectTimeoutMs: 200 });
  await assert.rejects(client.connected(), { name: "ConnectError" });
  const later = client.subscribe("/a/b");
  await assert.rejects(later.next(), { name: "ConnectError" });
  await assert.rejects(later.confirmed(), { name: "ConnectError" });
  await client.close();
  silent.close();
});

test("where nobody listens one hears so", async () => {
  const closed = net.createServer().listen(0, "127.0.0.1");
  await once(closed, "listening");
  const address = `127.0.0.1:${closed.address().port}`;
  closed.close();
  await assert.rejects(connect(address, { connectTimeoutMs: 300 }), {
    name: "ConnectError",
    message: `no server was reached in 0.3 s: ${address}: nobody answered: connect ECONNREFUSED ${address}`,
  });
  const client = new Client(address, { connectTimeoutMs: 200 });
  await assert.rejects(client.publish("/a/b", "1"), { name: "PublishError" });
  await client.close();
  await assert.rejects(client.publish("/a/b", "1"), { name: "NotOpenError" });
});
