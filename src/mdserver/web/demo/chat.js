/**
 * A chat with history and presence.
 *
 * What is said are messages of one subject, and the server brings the last ones first. Who is there
 * says so every few seconds, and at once when somebody new comes; who is silent for too long, or
 * says goodbye, is gone. None of that is kept by the server (`retained: false`).
 */

import { Client } from "../client/mdserver.js";
import { showState } from "./state.js";

const TALK = "/chat/lobby";
const BEAT_MS = 5000;
const BEAT_PAUSE_MS = 1000; // between beats, however many people come
const GONE_MS = 3 * BEAT_MS;
const LINES_MAX = 200;
const find = (id) => document.getElementById(id);

const client = new Client();
showState(client);
const me = Math.random().toString(36).slice(2);
const people = new Map(); // id -> {name, heard}
let [beaten, answering] = [-Infinity, 0]; // when we said that we are there; the timer of the next time
find("name").value = `Guest ${me.slice(0, 4)}`;

client.subscribe(TALK, { history: 50 }, ({ content, fields }) => {
  const [line, name] = [document.createElement("li"), document.createElement("b")];
  name.textContent = fields.name ?? "somebody";
  line.append(name, " ", content);
  find("talk").append(line);
  while (find("talk").children.length > LINES_MAX) find("talk").firstChild.remove();
  line.scrollIntoView({ block: "nearest" });
});

client.subscribe("/presence/lobby/*", ({ subject, content, fields }) => {
  const id = subject.split("/")[3];
  if (fields.gone) people.delete(id);
  else {
    if (!people.has(id) && id !== me) answer(); // so that who is new learns of us
    people.set(id, { name: content, heard: performance.now() });
  }
  showPeople();
});

/** Say that we are there at once, or a while after the last time. */
function answer() {
  answering ||= setTimeout(() => {
    answering = 0;
    beat();
  }, Math.max(0, beaten + BEAT_PAUSE_MS - performance.now()));
}

/** Say that we are there, or that we leave. */
function beat(fields = {}) {
  if (client.phase !== "up") return;
  beaten = performance.now();
  const how = { fields, retained: false, qos: "STANDARD" };
  client.publish(`/presence/lobby/${me}`, find("name").value, how).catch(() => {});
}

function showPeople() {
  const now = performance.now();
  for (const [id, { heard }] of people) if (now - heard > GONE_MS) people.delete(id);
  const names = [...people.values()].map(({ name }) => name).sort();
  find("people").replaceChildren(
    ...names.map((name) => Object.assign(document.createElement("li"), { textContent: name })),
  );
}

find("say").onsubmit = async (event) => {
  event.preventDefault();
  const text = find("text").value;
  if (!text) return;
  find("text").value = "";
  try {
    await client.publish(TALK, text, { fields: { name: find("name").value } });
    find("outcome").textContent = "";
  } catch (error) {
    find("outcome").textContent = `Not sent: ${error.message}`;
    find("text").value ||= text;
  }
};
find("me").onsubmit = (event) => event.preventDefault();
find("name").onchange = () => beat();
client.connected().then(() => beat(), () => {});
setInterval(() => {
  answer();
  showPeople();
}, BEAT_MS);
addEventListener("pagehide", () => beat({ gone: "1" }));
