/**
 * Plays recorded conversations (tests/web/recorded.py) with the JavaScript core.
 *
 *     node replay.mjs FILE    one conversation a line; prints how many were the same
 *
 * Ends with status 1 at the first output that differs, and shows it.
 */

import assert from "node:assert/strict";
import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import { ClientCore } from "../../src/mdserver/web/client/core/machine.js";
import { BinaryCodec } from "../../src/mdserver/web/client/codec/binary.js";
import { JsonCodec } from "../../src/mdserver/web/client/codec/json.js";
import { authority } from "../../src/mdserver/web/client/core/servers.js";
import { commandOf, messageOf, plain } from "./plain.mjs";

const CODECS = { json: JsonCodec, binary: BinaryCodec };
const AT_TOLERANCE_MS = 0.001;

function told(output) {
  switch (output.kind) {
    case "open":
      return { ...output, server: authority(output.server) };
    case "transmit":
      return { kind: "transmit", attempt: output.attempt, command: commandOf(output.frame) };
    case "close":
      return { kind: "close", attempt: output.attempt, code: output.code };
    case "deliver":
      return { ...output, messages: output.messages.map(messageOf) };
    case "connected":
      return { kind: "connected", session: output.event.session };
    case "stopped":
      return { kind: "stopped", code: output.code };
    default:
      return plain(output);
  }
}

/** Compares as assert does, but for the times of timers, which are rounded elsewhere. */
function same(actual, expected) {
  for (const [index, output] of expected.entries()) {
    if (output.kind !== "timer" || actual[index]?.kind !== "timer") continue;
    if (Math.abs(actual[index].at - output.at) <= AT_TOLERANCE_MS) actual[index].at = output.at;
  }
  // What is wrong with a server's bytes is said in other words by each codec.
  const blurred = (outputs) =>
    JSON.parse(JSON.stringify(outputs), (key, value) =>
      typeof value === "string" ? value.replace(/(the server broke the protocol): .*/s, "$1") : value,
    );
  assert.deepEqual(blurred(actual), blurred(expected));
}

function play({ servers, settings, encoding, draws, steps }) {
  let drawn = 0;
  const random = () => {
    assert(drawn < draws.length, "more random numbers are drawn than in the recording");
    return draws[drawn++];
  };
  const core = new ClientCore(servers, settings, () => new CODECS[encoding](), random);
  for (const [index, { call, given, outputs }] of steps.entries()) {
    const args = [...given];
    if (call === "received" && encoding === "binary") {
      args[1] = new Uint8Array(Buffer.from(args[1], "base64"));
    }
    if (call === "publish" && args[0].content_base64 !== undefined) {
      const { content_base64: content, ...rest } = args[0];
      args[0] = { ...rest, content: new Uint8Array(Buffer.from(content, "base64")) };
    }
    const said = core[call](...args);
    try {
      same((said.outputs ?? said).map(told), outputs);
    } catch (error) {
      error.message = `step ${index}, ${call}(${JSON.stringify(given).slice(0, 500)}): ${error.message}`;
      throw error;
    }
  }
  assert.equal(drawn, draws.length, "fewer random numbers are drawn than in the recording");
  return steps.length;
}

let [conversations, calls] = [0, 0];
for await (const line of createInterface({ input: createReadStream(process.argv[2]) })) {
  const conversation = JSON.parse(line);
  try {
    calls += play(conversation);
  } catch (error) {
    console.error(`conversation ${conversations} (${conversation.name}): ${error.message}`);
    process.exit(1);
  }
  conversations += 1;
}
console.log(`${conversations} conversations, ${calls} calls: the same`);
