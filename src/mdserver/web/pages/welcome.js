/** The page that a server shows at `/`: subscribes and publishes with the JavaScript client. */

import { Client, StoppedError } from "./client/mdserver.js";

const LABELS = ["Subject", "Content", "Fields", "Type", "Position"];
const ROWS_MAX = 200;
const CHARACTERS_SHOWN_MAX = 2000;
const CLOSE_CONNECT_DENIED = 4101;
// Somebody looks at this page: a second at first, half a minute at most.
const RECONNECT = { quickInitialDelayMs: 1000, timeIntervalMs: 2000, maxDelayMs: 30_000 };

const find = (id) => document.getElementById(id);
const say = (text) => (find("state").textContent = text);
let client = null;
let subscription = null;
let toShow = [];

function tell(text, isGood = false) {
  find("outcome").textContent = text;
  find("outcome").className = isGood ? "good" : "";
}

// The connection

/** Begin with the token that was given, if any. */
function connect() {
  client?.close();
  say("Connecting");
  const token = find("token").value || undefined;
  const mine = new Client(undefined, { token, reconnect: RECONNECT, connectTimeoutMs: 0 });
  client = mine;
  mine.addEventListener("status", ({ detail }) => {
    if (client === mine) statuses[detail.status]?.(detail);
  });
  subscribe();
}

const statuses = {
  SERVER_UP: ({ info }) => say(`Connected to ${info}`),
  SERVER_DOWN({ info }) {
    if (client.phase === "needs token") askForToken("The token has expired: give a new one.");
    else if (client.phase !== "stopped") say(`Disconnected: ${info} Connecting again.`);
  },
  TOKEN_TO_EXPIRE: () => tell("The token expires soon: give a new one."),
  DATA_RESYNC({ subject, missing, info }) {
    const range = missing ? `${at(missing.from)} to ${at(missing.to)}` : "";
    const what = info || "Messages of this subject were missed and are lost.";
    show([subject, what, "", "DATA_RESYNC", range], true);
  },
  ERROR: ({ info }) => tell(info),
};

/** No server wants this client as it is. */
function stopped({ code, reason }) {
  if (code === CLOSE_CONNECT_DENIED) askForToken(`The server refuses this client: ${reason}`);
  else say(`The server ended the connection for good (${code}): ${reason}`);
}

function askForToken(why) {
  say(why);
  find("token").focus();
}

// Messages

/** Show the messages of the pattern, until another one is asked for. */
async function subscribe() {
  const mine = client;
  try {
    const following = client.subscribe(find("pattern").value);
    subscription?.end();
    subscription = following;
    for await (const message of following) show(cells(message));
  } catch (error) {
    if (client !== mine) return;
    if (error instanceof StoppedError) stopped(error);
    else tell(error.message);
  }
}

const at = ({ epoch, seq }) => `${epoch}:${seq}`;

function cells({ subject, content, fields, type, position }) {
  const shown = Object.entries(fields).map(([name, value]) => `${name}=${value}`);
  const text = typeof content === "string" ? content : `${content.length} bytes`;
  return [subject, text, shown.join(" "), type, position ? at(position) : ""];
}

function show(texts, isLost = false) {
  toShow.push([texts, isLost]);
  if (toShow.length > ROWS_MAX) toShow.shift();
  if (toShow.length === 1) requestAnimationFrame(paint);
}

function paint() {
  const rows = find("messages");
  for (const [texts, isLost] of toShow) {
    const row = rows.insertRow(0);
    if (isLost) row.className = "lost";
    texts.forEach((text, column) => fill(row.insertCell(), text, column));
  }
  toShow = [];
  while (rows.rows.length > ROWS_MAX) rows.deleteRow(-1);
}

function fill(cell, text, column) {
  cell.dataset.label = LABELS[column];
  const isLong = text.length > CHARACTERS_SHOWN_MAX;
  const shown = isLong
    ? `${text.slice(0, CHARACTERS_SHOWN_MAX)}… (${text.length} characters)`
    : text;
  if (column) cell.textContent = shown;
  else for (const part of shown.split(/(?<=.)(?=\/)/)) {
    cell.append(part, document.createElement("wbr")); // long subjects break at a slash
  }
}

// What the user asks for

find("access").onsubmit = (event) => {
  event.preventDefault();
  connect();
};
find("subscribe").onsubmit = (event) => {
  event.preventDefault();
  tell(client.phase === "up" ? "" : "Not connected: this is subscribed to once there is a connection.");
  subscribe();
};
find("publish").onsubmit = async (event) => {
  event.preventDefault();
  const subject = find("subject").value;
  if (client.phase !== "up") {
    tell("Not connected: nothing was published.");
    return;
  }
  try {
    const result = await client.publish(subject, find("content").value);
    tell(`Published ${subject} at ${at(result)}`, true);
  } catch (error) {
    tell(error.message);
  }
};
connect();
