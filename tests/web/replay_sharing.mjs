/**
 * Repeats walks of overlapping subscriptions (tests/web/recorded_sharing.py) in JavaScript.
 *
 *     node replay_sharing.mjs FILE    one walk a line; ends with an error at the first difference
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { JsonCodec } from "../../src/mdserver/web/client/codec/json.js";
import { ClientCore } from "../../src/mdserver/web/client/core/machine.js";
import { SharedSubscriptions } from "../../src/mdserver/web/client/sharing.js";
import { Subscription } from "../../src/mdserver/web/client/subscription.js";

class Walk {
  #settings = { client: "mdserver-python" };
  #core = new ClientCore(["a:1"], this.#settings, () => new JsonCodec(), () => 0.5);
  #shared = new SharedSubscriptions(this.#core, (outputs) => this.#perform(outputs));
  #client = { release: (subscription) => this.#shared.release(subscription) };
  #subscriptions = [];
  #attempt = 0;
  #joinAgain = false;
  sent = [];

  constructor() {
    this.#perform(this.#core.connect(0));
  }

  #perform(outputs) {
    for (const output of outputs) this.#take(output);
    if (this.#joinAgain && this.#core.phase === "up") {
      this.#joinAgain = false;
      this.#shared.goOn();
    }
  }

  #take(output) {
    if (output.kind === "open") this.#attempt = output.attempt;
    else if (output.kind === "transmit") this.sent.push(JSON.parse(output.frame));
    else if (output.kind === "deliver") this.#shared.deliver(output);
    else if (output.kind === "subscribed") this.#shared.subscribed(output.subjects);
    else if (output.kind === "refused") this.#shared.refused(output.subjects, output.reason);
    else if (output.kind === "reported") this.#shared.reported(output.mark);
    else if (output.kind === "connected") this.#joinAgain = this.#shared.connected();
  }

  add(subjects, history, room, conflationMs) {
    const subscription = new Subscription(this.#client, subjects, room, undefined);
    this.#subscriptions.push(subscription);
    this.#shared.add(subscription, history, conflationMs);
  }

  remove(which, subjects) {
    this.#shared.remove(this.#subscriptions[which], subjects);
  }

  pause() {
    this.#perform(this.#core.pause());
    this.#shared.interrupt();
  }

  resume() {
    this.#perform(this.#core.resume());
    this.#shared.goOn();
  }

  token() {
    this.#perform(this.#core.setToken("t", 0));
  }

  lose(attempt) {
    this.#perform(this.#core.closed(attempt, 1006, "gone", 0));
  }

  connect() {
    if (this.#core.phase === "waiting") this.#perform(this.#core.due("attempt", 0));
    this.#perform(this.#core.opened(this.#attempt, 0));
  }

  hear(attempt, payload) {
    this.#perform(this.#core.received(attempt, payload, 0));
  }

  async read(which, count) {
    const got = [];
    while (got.length < count) {
      const next = this.#subscriptions[which].next().catch(() => "refused");
      const taken = await next;
      const message = taken.value;
      got.push(message ? [message.subject, message.position.seq, message.type] : taken);
    }
    return got;
  }
}

const lines = readFileSync(process.argv[2], "utf8").trim().split("\n");
for (const line of lines) {
  const { seed, steps } = JSON.parse(line);
  const walk = new Walk();
  for (const [index, { call, given, sent, got }] of steps.entries()) {
    const where = `walk ${seed}, step ${index}, ${call}(${JSON.stringify(given)})`;
    walk.sent = [];
    if (call === "take") assert.deepEqual(await walk.read(given[0], got.length), got, where);
    else walk[call](...given);
    assert.deepEqual(walk.sent, sent, where);
  }
}
console.log(`${lines.length} walks: the same`);
