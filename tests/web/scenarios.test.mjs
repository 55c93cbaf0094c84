/**
 * The JavaScript core plays the scenarios of the client core: tests/client/core/scenarios, whose
 * language is described in tests/client/core/scenario.py.
 */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { JsonCodec } from "../../src/mdserver/web/client/codec/json.js";
import { ClientCore } from "../../src/mdserver/web/client/core/machine.js";
import { RECONNECT_BROWSER } from "../../src/mdserver/web/client/core/schedule.js";
import { authority } from "../../src/mdserver/web/client/core/servers.js";
import { ClientError } from "../../src/mdserver/web/client/errors.js";

const FOLDER = new URL("../client/core/scenarios/", import.meta.url);
const SCENARIOS_MIN = 15;
const CLOSE_PROTOCOL = 4100;
const CONNECTED = {
  session: "1",
  member: "m",
  version: 1,
  history: "h1",
  groups: 4,
  keepalive_ms: 0,
  message_bytes_max: 1000,
};
const LISTS = new Set(["subjects", "servers"]);

class Play {
  #part = 0.5;
  #now = 0;
  #attempt = 0;
  #timers = new Map();
  #core = this.#made({});

  #made({ servers = ["a:1"], ...keys }) {
    const parts = { reconnect: {}, numbering: {} };
    const own = { client: "me/1" };
    for (const [name, value] of Object.entries(keys)) {
      const [part, rest] = name.split(".");
      (rest ? parts[part] : own)[camel(rest ?? part)] = value;
    }
    const reconnect = { ...RECONNECT_BROWSER, ...parts.reconnect };
    const { taken = "", ...numbering } = parts.numbering;
    if (numbering.groups) {
      const pairs = taken.split(",").map((pair) => pair.split(":"));
      own.numbering = { ...numbering, taken: Object.fromEntries(pairs.map(([g, n]) => [g, Number(n)])) };
    }
    return new ClientCore(servers, { ...own, reconnect }, () => new JsonCodec(), () => this.#part);
  }

  input(line) {
    const words = split(line);
    const attempt = words[0].startsWith("@") ? Number(words.shift().slice(1)) : this.#attempt;
    const [phase, now] = [this.#core.phase, this.#now];
    const shown = [];
    try {
      shown.push(...this.#shown(words, attempt));
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      shown.push(`error ${error.message}`);
    }
    if (this.#now !== now) shown.unshift(`at ${showTime(this.#now)}`);
    if (this.#core.phase !== phase) shown.push(`phase ${this.#core.phase}`);
    return shown;
  }

  #shown([name, ...rest], attempt) {
    const core = this.#core;
    const [plain, keys] = readWords(rest);
    switch (name) {
      case "settings":
        this.#core = this.#made(keys);
        return [];
      case "random":
        this.#part = Number(rest[0]);
        return [];
      case "pass":
        return this.#pass(this.#now + milliseconds(rest[0]));
      case "wait":
        assert(this.#timers.has(rest[0]), `no timer '${rest[0]}' is set`);
        return this.#due(rest[0], this.#timers.get(rest[0]) + milliseconds(rest[1] ?? "0"));
      case "servers":
        core.setServers(rest);
        return [];
      case "publish":
        return this.#publish(plain, keys);
      case "numbering": {
        const { publisherKey, ...told } = core.numbering;
        return [`numbering${showKeys({ ...told, publisher_key: publisherKey })}`];
      }
      case "restore":
        core.positions.restore(keys);
        return [];
      case "subscriptions":
      case "positions":
        return [[name, ...core[name].subjects()].join(" ")];
      case "<": {
        const said = JSON.stringify(partsOf(rest).map(event));
        return this.#take(core.received(attempt, said, this.#now));
      }
      case "opened":
        return this.#take(core.opened(attempt, this.#now));
      case "heard":
        core.heard(attempt, this.#now);
        return [];
      case "lost":
        return this.#take(core.closed(attempt, Number(rest[0]), rest.slice(1).join(" "), this.#now));
      default:
        return this.#take(this.#wish(name, plain, keys));
    }
  }

  #wish(name, plain, keys) {
    const core = this.#core;
    switch (name) {
      case "connect":
        return core.connect(this.#now);
      case "disconnect":
      case "pause":
      case "resume":
        return core[name]();
      case "give-up":
        return core.giveUp(plain.join(" "));
      case "token":
        return core.setToken(plain[0], this.#now);
      case "subscribe":
        return core.subscribe(plain, camelled(keys));
      case "unsubscribe":
      case "hold":
      case "release":
        return core[name](plain);
      case "mark":
        return core.mark(Number(plain[0]));
      case "caught-up":
        return core.mark(Number(plain[0]), { caughtUp: true });
      default:
        throw new Error(`there is no input '${name}'`);
    }
  }

  #publish([subject, content], keys) {
    const own = Object.entries(keys).filter(([name]) => !name.startsWith("+"));
    const fields = Object.entries(keys).filter(([name]) => name.startsWith("+"));
    const request = { op: "publish", subject, content: repeated(content), ...Object.fromEntries(own) };
    if (fields.length) {
      request.fields = Object.fromEntries(fields.map(([name, value]) => [name.slice(1), `${value}`]));
    }
    const { publication, outputs } = this.#core.publish(request);
    return [`number ${publication}`, ...this.#take(outputs)];
  }

  #pass(until) {
    const shown = [];
    for (;;) {
      const [due] = [...this.#timers].sort(([a, at], [b, bt]) => at - bt || (a < b ? -1 : 1));
      if (due === undefined || due[1] > until) break;
      shown.push(...this.#due(...due));
    }
    this.#now = until;
    return shown;
  }

  #due(timer, at) {
    this.#now = at;
    this.#timers.delete(timer);
    return this.#take(this.#core.due(timer, at));
  }

  #take(outputs) {
    for (const output of outputs) {
      if (output.kind === "open") this.#attempt = output.attempt;
      if (output.kind === "timer") this.#timers.set(output.timer, output.at);
      if (output.kind === "cancel") assert(this.#timers.delete(output.timer));
    }
    return outputs.flatMap(show);
  }
}

// Reading

function split(line) {
  return [...line.matchAll(/(?:[^\s"]|"[^"]*")+/g)].map(([word]) => word.replaceAll('"', ""));
}

function milliseconds(text) {
  return Math.round(Number(text.replace(/s$/, "")) * 1000);
}

function partsOf(words) {
  const parts = [[]];
  for (const word of words) {
    if (word === "|") parts.push([]);
    else parts[parts.length - 1].push(word);
  }
  return parts;
}

function readWords(words) {
  const plain = words.filter((word) => !word.includes("="));
  const pairs = words.filter((word) => word.includes("=")).map((word) => word.split(/=(.*)/s));
  return [plain, Object.fromEntries(pairs.map(([name, value]) => [name, readValue(name, value)]))];
}

function readValue(name, text) {
  if (LISTS.has(name)) return text ? text.split(",") : [];
  if (name === "missing") {
    const [from, to] = text.split("..");
    return { from: readValue("from", from), to: readValue("to", to) };
  }
  const position = /^([^:,\s]+):(\d+),(\d+)$/.exec(text);
  if (position) {
    return { history: position[1], epoch: Number(position[2]), seq: Number(position[3]) };
  }
  return /^(-?\d+(\.\d+)?|true|false|null)$/.test(text) ? JSON.parse(text) : repeated(text);
}

function repeated(text) {
  const times = /^(.)\*(\d+)$/u.exec(text);
  return times ? times[1].repeat(Number(times[2])) : text;
}

function event([op, ...rest]) {
  const [plain, keys] = readWords(rest);
  if (op === "pong") return { op, t: plain[0] ?? null, ...keys };
  if (op === "connected") return { op, ...CONNECTED, ...keys };
  if (plain.length) {
    const [epoch, seq] = plain[1].split(",").map(Number);
    const content = `${plain[0]} ${seq}`;
    return { op: "message", type: op, subject: plain[0], content, epoch, seq, ...keys };
  }
  return /^[A-Z_]+$/.test(op) ? { op: "status", status: op, ...keys } : { op, ...keys };
}

function camel(name) {
  return name.replace(/_s$/, "_ms").replace(/_(.)/g, (_, letter) => letter.toUpperCase());
}

function camelled(keys) {
  return Object.fromEntries(Object.entries(keys).map(([name, value]) => [camel(name), value]));
}

// Showing

function show(output) {
  switch (output.kind) {
    case "open": {
      const { server, attempt, secure } = output;
      return [`open ${authority(server)} attempt=${attempt}${secure ? " secure=true" : ""}`];
    }
    case "transmit":
      return [`send ${showCommand(JSON.parse(output.frame))}`];
    case "close": {
      const { code, reason } = output;
      return [`close ${code} ${code === CLOSE_PROTOCOL ? "" : reason}`.trimEnd()];
    }
    case "timer":
      return [`timer ${output.timer} ${showTime(output.at)}`];
    case "cancel":
      return [`cancel ${output.timer}`];
    case "deliver":
      return output.messages.map(
        (message) => `deliver ${output.repeated ? "again " : ""}${showMessage(message)}`,
      );
    case "notify": {
      const { status, ...told } = output.notice;
      return [`notify ${status}${showKeys(told)}`];
    }
    case "published": {
      const { publication, status, certain, ...told } = output.result;
      const kept = Object.entries(told).filter(([, value]) => value);
      if (!certain) kept.push(["certain", false]);
      return [`published ${publication} ${status}${showKeys(Object.fromEntries(kept))}`];
    }
    case "subscribed":
      return [["subscribed", ...output.subjects].join(" ")];
    case "reported":
      return [`reported ${output.mark}`];
    case "refused":
      return [["refused", ...output.subjects, showValue(output.reason)].join(" ")];
    case "connected":
      return ["connected"];
    case "stopped":
      return [`stopped ${output.code} ${blurred(output.reason)}`.trimEnd()];
    default:
      throw new Error(`there is no output '${output.kind}'`);
  }
}

function blurred(text) {
  return text.replace(/(the server broke the protocol): .*/s, "$1");
}

function showCommand({ op, subjects = [], positions = {}, ...keys }) {
  const after = Object.entries(positions).map(([subject, at]) => `after=${subject}@${showValue(at)}`);
  return [op, ...subjects, ...after].join(" ") + showKeys(keys);
}

function showMessage({ op: _, type, subject, epoch, seq, content, ...keys }) {
  return `${type} ${subject} ${epoch},${seq} ${JSON.stringify(content)}${showKeys(keys)}`;
}

function showKeys(keys) {
  const told = Object.entries(keys).filter(([, value]) => value !== undefined && value !== null);
  told.sort(([a], [b]) => (a < b ? -1 : 1));
  return told.map(([name, value]) => ` ${name}=${showValue(value)}`).join("");
}

function showValue(value) {
  if (typeof value === "string") {
    const runs = blurred(value).replace(/(.)\1{29,}/gu, (run, one) => `${one}*${[...run].length}`);
    return /^[^\s"]+$/.test(runs) ? runs : JSON.stringify(runs);
  }
  if (typeof value !== "object") return `${value}`;
  if ("seq" in value) return `${value.history}:${value.epoch},${value.seq}`;
  if ("to" in value) return `${showValue(value.from)}..${showValue(value.to)}`;
  const names = Object.keys(value).sort();
  return names.map((name) => `${name}:${showValue(value[name])}`).join(",");
}

function showTime(ms) {
  return `${(ms / 1000).toFixed(3).replace(/\.?0+$/, "")}s`;
}

const files = readdirSync(FOLDER).filter((name) => name.endsWith(".txt"));
for (const name of files.sort()) {
  test(name, () => {
    const expected = readFileSync(new URL(name, FOLDER), "utf8").trimEnd().split("\n");
    const play = new Play();
    const lines = [];
    for (const line of expected) {
      if (/^\s+\S/.test(line)) continue;
      lines.push(line);
      if (line && !line.startsWith("#")) lines.push(...play.input(line).map((shown) => `  ${shown}`));
    }
    assert.equal(lines.join("\n"), expected.join("\n"));
  });
}

test("there are scenarios", () => assert(files.length >= SCENARIOS_MIN));
