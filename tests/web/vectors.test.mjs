/** The client makes of the published vectors (tests/vectors) what they say it should. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { BinaryCodec } from "../../src/mdserver/web/client/codec/binary.js";
import { JsonCodec } from "../../src/mdserver/web/client/codec/json.js";
import { ProtocolError } from "../../src/mdserver/web/client/errors.js";
import { commandOf, messageOf, plain } from "./plain.mjs";

const FILE = new URL("../vectors/encodings.json", import.meta.url);
const vectors = JSON.parse(readFileSync(FILE, "utf8"));

const bytes = (hex) => new Uint8Array(Buffer.from(hex, "hex"));

for (const { name, value } of vectors.commands) {
  test(`command: ${name}`, () => {
    const { content_base64: content, ...rest } = value;
    const command =
      content === undefined ? value : { ...rest, content: new Uint8Array(Buffer.from(content, "base64")) };
    assert.deepEqual(JSON.parse(new JsonCodec().command(command)), value);
    assert.deepEqual(commandOf(new BinaryCodec().command(command)), value);
  });
}

for (const { name, value, json, binary } of vectors.events) {
  test(`event: ${name}`, () => {
    assert.deepEqual(plain(new JsonCodec().events(json)), [value]);
    assert.deepEqual(plain(new BinaryCodec().events(bytes(binary))), [value]);
  });
}

for (const { name, json, binary, events } of vectors.messages) {
  test(`messages: ${name}`, () => {
    if (json !== undefined) assert.deepEqual(new JsonCodec().events(json).map(messageOf), events);
    assert.deepEqual(new BinaryCodec().events(bytes(binary)).map(messageOf), events);
  });
}

for (const { name, json, binary } of vectors.malformed_events) {
  test(`no event: ${name}`, () => {
    if (json !== undefined) assert.throws(() => new JsonCodec().events(json), ProtocolError);
    if (binary !== undefined) {
      assert.throws(() => new BinaryCodec().events(bytes(binary)), ProtocolError);
    }
  });
}

test("a stream of frames may be cut anywhere", () => {
  const binary = bytes(vectors.messages.map((vector) => vector.binary).join(""));
  const whole = new BinaryCodec().events(binary);
  for (const size of [1, 2, 3, 7, 64]) {
    const [codec, joiner] = [new BinaryCodec(), new BinaryCodec().joiner()];
    const events = [];
    for (let at = 0; at < binary.length; at += size) {
      events.push(...codec.events(joiner.feed(binary.subarray(at, at + size))));
    }
    assert.deepEqual(events, whole);
  }
});

test("random bytes are a protocol error or events, and nothing else", () => {
  let state = 7;
  const random = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
  let refused = 0;
  for (let run = 0; run < 20_000; run++) {
    const payload = Uint8Array.from({ length: Math.floor(random() * 40) }, () => random() * 256);
    if (random() < 0.7 && payload.length) payload[0] = 1 + Math.floor(random() * 6);
    if (random() < 0.7 && payload.length > 1) payload[1] = payload.length - 2;
    try {
      new BinaryCodec().events(payload);
    } catch (error) {
      assert(error instanceof ProtocolError, `${error.stack} for ${payload}`);
      refused += 1;
    }
  }
  assert(refused > 10_000);
});
