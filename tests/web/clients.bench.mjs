/**
 * How many messages a second a client takes in Node on one core, beside two other clients.
 *
 *     node clients.bench.mjs [--messages N] [--rounds N] [--only NAME]
 *
 * No network takes part: a WebSocket of this file answers what a client says at its start, then gives
 * it messages of 1,000 subjects, 100 in each message of the WebSocket, as fast as it takes them. What is
 * counted is messages in the application's callback. The clients take turns; the median round is told.
 */

import assert from "node:assert/strict";
import { parseArgs } from "node:util";
import { BinaryCodec } from "../../src/mdserver/web/client/codec/binary.js";
import { encode } from "../../src/mdserver/web/client/codec/msgpack.js";
import { Client } from "../../src/mdserver/web/client/index.js";

const OTHERS = new URL("../../build/bench-web/node_modules/", import.meta.url);
const SUBJECTS = 1000;
const TOGETHER = 100;
const CONTENT = "193.27 is what somebody bid for it in New York";

const { values } = parseArgs({
  options: {
    messages: { type: "string", default: "300000" },
    rounds: { type: "string", default: "5" },
    only: { type: "string" },
  },
});
const messages = Number(values.messages);
const rounds = Number(values.rounds);
const utf8 = new TextEncoder();
const text = new TextDecoder();

/** A WebSocket whose other end is `answers(said)`: payloads for what the client said. */
function socketOf(answers) {
  return class FakeSocket {
    static CONNECTING = 0;
    static OPEN = 1;
    static CLOSING = 2;
    static CLOSED = 3;
    static last;
    readyState = 0;
    binaryType = "";
    bufferedAmount = 0;
    onopen = null;
    onmessage = null;
    onclose = null;
    onerror = null;

    constructor(url, protocols = []) {
      this.url = url;
      this.protocol = [protocols].flat()[0] ?? "";
      FakeSocket.last = this;
      setTimeout(() => {
        this.readyState = 1;
        this.onopen?.({});
        this.give(answers(null));
      });
    }

    send(payload) {
      setTimeout(() => this.give(answers(payload)));
    }

    give(payloads) {
      for (const data of payloads) this.onmessage?.({ data });
    }

    close() {
      this.readyState = 3;
      setTimeout(() => this.onclose?.({ code: 1000, reason: "" }));
    }
  };
}

function joined(parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function varint(value) {
  const bytes = [];
  for (; value > 0x7f; value = Math.floor(value / 128)) bytes.push((value & 0x7f) | 0x80);
  return Uint8Array.from([...bytes, value]);
}

const sized = (part) => joined([varint(part.length), part]);

/** Payloads with all messages: `one(subject, seq)` gives the bytes of one, `frame` joins a hundred. */
function* payloads(one, frame = joined) {
  for (let first = 0; first < messages; first += TOGETHER) {
    const parts = [];
    for (let number = first; number < Math.min(first + TOGETHER, messages); number++) {
      parts.push(one(number % SUBJECTS, Math.floor(number / SUBJECTS) + 1));
    }
    yield frame(parts);
  }
}

/** Gives everything to the client, with a pause for what it does later, and tells the seconds. */
async function fed(socket, given, seen) {
  const began = performance.now();
  for (let at = 0; at < given.length; at++) {
    socket.onmessage({ data: given[at] });
    if (at % 10 === 9) await new Promise(setImmediate);
  }
  while (seen() < messages) await new Promise(setImmediate);
  return (performance.now() - began) / 1000;
}

// This client

const CONNECTED = {
  op: "connected",
  session: "1",
  member: "m",
  version: 1,
  history: "h",
  groups: 4,
  keepalive_ms: 0,
  message_bytes_max: 1_000_000,
};

async function mdserver(options, events, given) {
  let session;
  const Socket = socketOf((said) => {
    if (said === null || session) return [];
    session = events();
    return [session];
  });
  const client = new Client("127.0.0.1:1", { ...options, WebSocket: Socket, transport: "websocket" });
  let seen = 0;
  client.subscribe("/stocks/**", ({ content }) => {
    if (content === CONTENT) seen += 1;
  });
  await client.connected();
  const seconds = await fed(Socket.last, given, () => seen);
  client.disconnect();
  await client.close();
  assert.equal(seen, messages);
  return seconds;
}

const subjects = Array.from({ length: SUBJECTS }, (_, number) => `/stocks/S${number}`);
const framed = (type, payload) => joined([Uint8Array.of(type), sized(payload)]);
const content = utf8.encode(CONTENT);

const binary = {
  given: () =>
    [...payloads((subject, seq) => framed(4, joined([varint(subject), varint(seq), content])))].map(
      ({ buffer }) => buffer,
    ),
  run(given) {
    const pattern = utf8.encode("/stocks/**");
    const aliases = subjects.map((subject, alias) =>
      framed(3, joined([varint(alias), varint(1), varint(0), sized(utf8.encode(subject)), pattern])),
    );
    const first = () => joined([framed(2, encode(CONNECTED)), ...aliases]).buffer;
    return mdserver({ codec: BinaryCodec }, first, given);
  },
};

const json = {
  given: () => [
    ...payloads(
      (subject, seq) =>
        JSON.stringify({
          op: "message",
          subject: subjects[subject],
          content: CONTENT,
          type: "UPDATE",
          epoch: 1,
          seq,
          match: "/stocks/**",
        }),
      (parts) => `[${parts.join(",")}]`,
    ),
  ],
  run: (given) => mdserver({}, () => JSON.stringify(CONNECTED), given),
};

// Others: one channel of centrifuge, as it knows no patterns; a pattern of NATS

const string = (field, bytes) => joined([Uint8Array.of((field << 3) | 2), sized(bytes)]);
const number = (field, value) => joined([Uint8Array.of(field << 3), varint(value)]);

async function centrifugeWith(Centrifuge, answers, binaryForm, given) {
  const Socket = socketOf(answers);
  const options = { websocket: Socket, ...(binaryForm ? {} : { protocol: "json" }) };
  const client = new Centrifuge("ws://127.0.0.1:1/", options);
  let seen = 0;
  const subscription = client.newSubscription("stocks");
  subscription.on("publication", ({ data }) => {
    if ((binaryForm ? text.decode(data) : data) === CONTENT) seen += 1;
  });
  const subscribed = new Promise((resolve) => subscription.on("subscribed", resolve));
  subscription.subscribe();
  client.connect();
  await subscribed;
  const seconds = await fed(Socket.last, given, () => seen);
  client.disconnect();
  assert.equal(seen, messages);
  return seconds;
}

const centrifugeBinary = {
  given: () => {
    const publication = string(4, string(4, content));
    const push = string(4, joined([string(2, utf8.encode("stocks")), publication]));
    return [...payloads(() => sized(push))].map(({ buffer }) => buffer);
  },
  async run(given) {
    const { Centrifuge } = await import(new URL("centrifuge/build/protobuf/index.mjs", OTHERS));
    const replies = [
      sized(joined([number(1, 1), string(5, string(2, utf8.encode("1")))])).buffer,
      sized(joined([number(1, 2), string(6, new Uint8Array())])).buffer,
    ];
    return centrifugeWith(Centrifuge, (said) => (said === null ? [] : replies.splice(0)), true, given);
  },
};

const centrifugeJson = {
  given: () => [
    ...payloads(
      () => JSON.stringify({ push: { channel: "stocks", pub: { data: CONTENT } } }),
      (parts) => parts.join("\n"),
    ),
  ],
  async run(given) {
    const { Centrifuge } = await import(new URL("centrifuge/build/index.mjs", OTHERS));
    const replies = ['{"id":1,"connect":{"client":"1","version":"1"}}', '{"id":2,"subscribe":{}}'];
    return centrifugeWith(Centrifuge, (said) => (said === null ? [] : replies.splice(0)), false, given);
  },
};

const nats = {
  given: () =>
    [
      ...payloads((subject) => utf8.encode(`MSG stocks.S${subject} 1 ${content.length}\r\n${CONTENT}\r\n`)),
    ].map(({ buffer }) => buffer),
  async run(given) {
    const { connect } = await import(new URL("nats.ws/esm/nats.js", OTHERS));
    const info = '{"server_id":"x","version":"2.10.0","proto":1,"max_payload":1048576,"headers":true}';
    const bytes = (said) => utf8.encode(said).buffer;
    globalThis.WebSocket = socketOf((said) => {
      if (said === null) return [bytes(`INFO ${info}\r\n`)];
      const pings = text.decode(said).split("PING\r\n").length - 1;
      return Array.from({ length: pings }, () => bytes("PONG\r\n"));
    });
    const client = await connect({ servers: "ws://127.0.0.1:1" });
    let seen = 0;
    client.subscribe("stocks.*", {
      callback: (_, { data }) => {
        if (text.decode(data) === CONTENT) seen += 1;
      },
    });
    const seconds = await fed(globalThis.WebSocket.last, given, () => seen);
    await client.close();
    assert.equal(seen, messages);
    return seconds;
  },
};

const contestants = {
  "mdserver binary": binary,
  "mdserver JSON": json,
  "centrifuge protobuf": centrifugeBinary,
  "centrifuge JSON": centrifugeJson,
  "nats.ws": nats,
};
const chosen = Object.entries(contestants).filter(([name]) => name.startsWith(values.only ?? ""));
const taken = new Map(chosen.map(([name]) => [name, []]));
for (let round = 0; round < rounds; round++) {
  for (const [name, { given, run }] of chosen) taken.get(name).push(await run(given()));
}
for (const [name, seconds] of taken) {
  const median = seconds.sort((a, b) => a - b)[Math.floor(seconds.length / 2)];
  console.log(`${name.padEnd(20)} ${Math.round(messages / median).toLocaleString("en")} messages/s`);
}
process.exit(0);
