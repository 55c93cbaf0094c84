/** The hub of tabs that share a connection, over a real core, told by hand what a server says. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { JsonCodec } from "../../src/mdserver/web/client/codec/json.js";
import { PUBLICATIONS_MAX } from "../../src/mdserver/web/client/core/limits.js";
import { ClientCore } from "../../src/mdserver/web/client/core/machine.js";
import {
  FLYING_BYTES_MAX,
  FLYING_MESSAGES_MAX,
  Hub,
  TOKEN_PATIENCE_MS,
  WAITING_BYTES_MAX,
} from "../../src/mdserver/web/client/tabs/hub.js";

const CONNECTED = {
  op: "connected",
  session: "1",
  member: "m",
  version: 1,
  history: "h1",
  groups: 4,
  keepalive_ms: 0,
  message_bytes_max: 1000,
};

class Play {
  sent = [];
  #now = 0;
  #attempt = 0;
  #later = [];
  #core = new ClientCore(["a:1"], { client: "me/1", publisher: "p" }, () => new JsonCodec(), () => 0.5);
  #numbers = 0;

  constructor() {
    const later = (delayMs, call) => this.#later.push({ at: this.#now + delayMs, call });
    this.hub = new Hub(this.#core, (outputs) => this.#perform(outputs), () => this.#now, later);
  }

  get phase() {
    return this.#core.phase;
  }

  #perform(outputs) {
    for (const output of outputs) {
      if (output.kind === "transmit") this.sent.push(JSON.parse(output.frame));
      else if (output.kind === "open") this.#attempt = output.attempt;
      else this.hub.take(output);
    }
  }

  /** A tab that says hello and connects; `told` is what it gets. */
  tab({ hasTokens = false } = {}) {
    const told = [];
    const tab = this.hub.attach((output) => told.push(output));
    const say = (op, more = {}) => this.hub.said(tab, { op, ...more });
    say("hello", { hasTokens });
    say("connect");
    const subscribe = (subject, more = {}) => {
      const id = (this.#numbers += 1);
      const wanted = { id, subjects: [subject], history: 0, conflationMs: 0, bufferMessages: 100 };
      say("subscribe", { ...wanted, ...more });
      return id;
    };
    const got = (kind) => told.filter((output) => output.kind === kind);
    const contents = () => got("deliver").flatMap(({ messages }) => messages.map((one) => one.content));
    return { tab, told, say, subscribe, got, contents };
  }

  up() {
    this.#perform(this.#core.opened(this.#attempt, this.#now));
    this.says(CONNECTED);
  }

  says(...events) {
    this.#perform(this.#core.received(this.#attempt, JSON.stringify(events), this.#now));
  }

  message(subject, seq, more = {}) {
    this.says({ op: "message", subject, content: `${seq}`, type: "UPDATE", epoch: 1, seq, ...more });
  }

  /** Answer all pings of the client. */
  pong() {
    const pings = this.sent.filter(({ op }) => op === "ping");
    this.sent = this.sent.filter(({ op }) => op !== "ping");
    for (const { t } of pings) this.says({ op: "pong", t });
  }

  lose() {
    this.#perform(this.#core.closed(this.#attempt, 1006, "lost", this.#now));
  }

  pass(ms) {
    this.#now += ms;
    const due = this.#later.filter(({ at }) => at <= this.#now);
    this.#later = this.#later.filter(({ at }) => at > this.#now);
    for (const { call } of due) call();
  }

  ops(op) {
    return this.sent.filter((command) => command.op === op);
  }
}

test("a subject of two tabs is subscribed until the last one has left", () => {
  const play = new Play();
  const [one, two] = [play.tab(), play.tab()];
  play.up();
  assert.deepEqual([one.got("connected").length, two.got("connected").length], [1, 1]);
  one.subscribe("/a/b");
  two.subscribe("/a/b");
  play.pong();
  assert.deepEqual(play.ops("subscribe").map(({ subjects }) => subjects), [["/a/b"], ["/a/b"]]);
  play.message("/a/b", 1);
  assert.deepEqual([one.contents(), two.contents()], [["1"], ["1"]]);
  play.hub.detach(one.tab);
  assert.deepEqual(play.ops("unsubscribe"), []);
  play.message("/a/b", 2);
  assert.deepEqual([one.contents(), two.contents()], [["1"], ["1", "2"]]);
  play.hub.detach(two.tab);
  assert.equal(play.phase, "idle", "without tabs there is no connection");
});

test("what a tab subscribed alone ends with it, while others stay", () => {
  const play = new Play();
  const [one, two] = [play.tab(), play.tab()];
  play.up();
  one.subscribe("/a/b");
  two.subscribe("/c/d");
  play.hub.detach(one.tab);
  assert.deepEqual(play.ops("unsubscribe").map(({ subjects }) => subjects), [["/a/b"]]);
  assert.equal(play.phase, "up");
});

test("one tab at a time is asked for a token", () => {
  const play = new Play();
  const tabs = [play.tab(), play.tab({ hasTokens: true }), play.tab({ hasTokens: true })];
  play.up();
  const asked = () => tabs.map(({ got }) => got("notify").filter(({ asks }) => asks).length);
  play.says({ op: "status", status: "TOKEN_TO_EXPIRE", info: "soon" });
  assert.deepEqual(tabs.map(({ got }) => got("notify").length - 1), [1, 1, 1], "all are told, after SERVER_UP");
  assert.deepEqual(asked(), [0, 1, 0]);
  play.pass(TOKEN_PATIENCE_MS);
  assert.deepEqual(asked(), [0, 1, 1], "one that brings none is followed by the next");
  play.hub.detach(tabs[2].tab);
  assert.deepEqual(asked(), [0, 2, 1], "and so is one that ends");
  tabs[1].say("token", { token: "t" });
  assert.deepEqual(play.ops("token").map(({ token }) => token), ["t"]);
  play.pass(10 * TOKEN_PATIENCE_MS);
  assert.deepEqual(asked(), [0, 2, 1]);
  tabs[0].say("token", { token: "t" });
  assert.equal(play.ops("token").length, 1, "the same token is not renewed");
});

test("a frozen tab has a bounded number of messages on their way, and the others go on", () => {
  const play = new Play();
  const [frozen, lively] = [play.tab(), play.tab()];
  play.up();
  frozen.subscribe("/a/b", { bufferMessages: 2 * FLYING_MESSAGES_MAX });
  play.pong();
  lively.subscribe("/a/b");
  play.pong();
  for (let seq = 1; seq <= FLYING_MESSAGES_MAX + 10; seq++) {
    play.message("/a/b", seq);
    lively.say("taken", { count: 1, bytes: `${seq}`.length });
  }
  assert.equal(frozen.contents().length, FLYING_MESSAGES_MAX);
  assert.equal(lively.contents().length, FLYING_MESSAGES_MAX + 10);
  frozen.say("taken", { count: FLYING_MESSAGES_MAX, bytes: 0 });
  assert.equal(frozen.contents().at(-1), `${FLYING_MESSAGES_MAX + 10}`);
  assert.equal(frozen.contents().length, FLYING_MESSAGES_MAX + 10);
  assert.deepEqual(frozen.got("notify").map(({ notice }) => notice.status), ["SERVER_UP"]);
});

test("a frozen tab has a bounded number of bytes on their way, and waiting, fields among them", () => {
  const play = new Play();
  const tab = play.tab();
  play.up();
  tab.subscribe("/a/b", { bufferMessages: 1_000_000 });
  play.pong();
  const note = "x".repeat(2 ** 20);
  const bytes = note.length + "note".length + 1;
  const flying = Math.ceil(FLYING_BYTES_MAX / bytes);
  const waiting = Math.floor(WAITING_BYTES_MAX / bytes);
  let seq = 0;
  const come = (count) => {
    for (let i = 0; i < count; i++) play.message("/a/b", (seq += 1) % 10, { seq, fields: { note } });
  };
  come(flying + waiting);
  assert.equal(tab.contents().length, flying);
  assert.equal(tab.got("deliver")[0].bytes, bytes);
  tab.say("taken", { count: 1, bytes });
  assert.equal(tab.contents().length, flying + 1, "one taken makes room for one");
  tab.say("taken", { count: flying, bytes: flying * bytes });
  assert.equal(tab.contents().length, flying + waiting, "nothing that waited was dropped");
  tab.say("taken", { count: waiting - 1, bytes: (waiting - 1) * bytes });
  come(flying + waiting + 1);
  assert.equal(tab.contents().length, flying + waiting + flying);
  tab.say("taken", { count: flying, bytes: flying * bytes });
  const [{ notice }] = tab.got("notify").slice(-1);
  assert.deepEqual([notice.status, notice.subject], ["DATA_RESYNC", "/a/b"]);
});

test("what had to be dropped begins again with the snapshot, and is told", () => {
  const play = new Play();
  const tab = play.tab();
  play.up();
  const id = tab.subscribe("/a/b", { bufferMessages: 3 });
  play.pong();
  tab.say("hold", { id });
  for (let seq = 1; seq <= 5; seq++) play.message("/a/b", seq);
  assert.deepEqual(tab.contents(), []);
  play.sent = [];
  tab.say("release", { id });
  const [{ notice }] = tab.got("notify").slice(-1);
  assert.deepEqual([notice.status, notice.subject], ["DATA_RESYNC", "/a/b"]);
  assert.deepEqual(play.sent.map(({ op }) => op), ["unsubscribe", "ping", "subscribe", "ping"]);
  play.pong();
  play.message("/a/b", 5, { type: "SNAPSHOT" });
  play.message("/a/b", 6);
  assert.deepEqual(tab.contents(), ["5", "6"]);
});

test("a refusal is for the tab that subscribed", () => {
  const play = new Play();
  const [one, two] = [play.tab(), play.tab()];
  play.up();
  const id = one.subscribe("/a/b");
  two.subscribe("/c/d");
  play.says({ op: "status", status: "SUBSCRIBE_DENY", subject: "/a/b", id: "s1", reason: "not permitted" });
  assert.deepEqual(one.got("refused"), [
    { kind: "refused", subjects: [[id, "/a/b"]], reason: "not permitted" },
  ]);
  assert.deepEqual(one.got("notify").map(({ notice }) => notice.status), ["SERVER_UP", "SUBSCRIBE_DENY"]);
  assert.deepEqual(two.got("notify").map(({ notice }) => notice.status), ["SERVER_UP"]);
});

test("results are for the tab that published, also after the connection was lost", () => {
  const play = new Play();
  const [one, two] = [play.tab(), play.tab()];
  play.up();
  one.say("publish", { id: 7, command: { op: "publish", subject: "/a/b", content: "1", closure: "c" } });
  two.say("publish", { id: 7, command: { op: "publish", subject: "/a/b", content: "2" } });
  play.lose();
  one.say("connect");
  play.up();
  const repeated = play.ops("publish").slice(-2);
  assert.deepEqual(repeated.map(({ content }) => content), ["1", "2"]);
  const [first, second] = repeated.map(({ id }) => id);
  const ok = { op: "status", status: "PUBLISH_OK", subject: "/a/b", epoch: 1 };
  play.says({ ...ok, id: second, seq: 2 }, { ...ok, id: first, seq: 1, closure: "c" });
  assert.deepEqual(one.got("published").map(({ result }) => [result.publication, result.seq]), [[7, 1]]);
  assert.deepEqual(two.got("published").map(({ result }) => [result.publication, result.seq]), [[7, 2]]);
  const closures = ({ got }) => got("notify").flatMap(({ notice }) => notice.closure ?? []);
  assert.deepEqual([closures(one), closures(two)], [["c"], []]);
});

test("a result that is there at once is told after the one that made room for it", () => {
  const play = new Play();
  const [one, two] = [play.tab(), play.tab()];
  play.up();
  const command = { op: "publish", subject: "/a/b", content: "1" };
  for (let id = 1; id <= PUBLICATIONS_MAX; id++) {
    one.say("publish", { id, command: { ...command, closure: "one" } });
  }
  const tooLong = "x".repeat(CONNECTED.message_bytes_max + 1);
  two.say("publish", { id: 7, command: { ...command, content: tooLong, closure: "two" } });
  assert.deepEqual(two.got("published"), [], "there is no room");
  const [{ id }] = play.ops("publish");
  play.says({ op: "status", status: "PUBLISH_OK", subject: "/a/b", id, epoch: 1, seq: 1, closure: "one" });
  assert.deepEqual(two.got("published").map(({ result }) => result.status), ["MESSAGE_SIZE_LIMIT_EXCEEDED"]);
  const closures = ({ got }) => got("notify").flatMap(({ notice }) => notice.closure ?? []);
  assert.deepEqual([closures(one), closures(two)], [["one"], []], "a result without a server has no notice");
});

test("questions of a tab are answered after what came before", () => {
  const play = new Play();
  const tab = play.tab();
  play.up();
  tab.subscribe("/a/b");
  tab.say("caughtUp", { mark: 3 });
  play.message("/a/b", 1, { type: "SNAPSHOT" });
  play.lose();
  tab.say("connect");
  play.up();
  assert.deepEqual(tab.got("reported"), []);
  play.pong();
  assert.deepEqual(tab.got("reported"), [{ kind: "reported", mark: 3 }]);
  assert.equal(tab.told.at(-1).kind, "reported");
});
