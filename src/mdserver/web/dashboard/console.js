/** The console: subscribes and publishes at a listener for clients, with the JavaScript client. */

import { Client, StoppedError } from "./client/mdserver.js";
import { find, row } from "./dom.js";

const ROWS_MAX = 100;
const CHARACTERS_SHOWN_MAX = 500;
const LABELS = ["Subject", "Content", "Fields", "Type", "Position"];
const RECONNECT = { quickInitialDelayMs: 1000, timeIntervalMs: 2000, maxDelayMs: 30_000 };

let client = null;
let subscription = null;
let isAnswer = false; // whether what is told answers an action: a connection does not replace it
const waiting = []; // messages that the next frame of the browser shows

function tell(text, isWarning = false) {
  isAnswer = true;
  find("outcome").textContent = text;
  find("outcome").className = isWarning ? "warning" : "";
}

function tellConnection(text, isWarning = false) {
  tell(text, isWarning);
  isAnswer = false;
}

const at = ({ epoch, seq }) => `${epoch}:${seq}`;

/** Set the address that is proposed: the listener, by the name under which this page was reached. */
export function propose(urls) {
  if (!urls?.length) return;
  const url = new URL(urls[0]);
  if (["0.0.0.0", "[::]"].includes(url.hostname)) url.hostname = location.hostname;
  find("server").value = url.origin;
}

function connect() {
  client?.close();
  subscription = null;
  const server = find("server").value.trim();
  tellConnection(`Connecting to ${server}`);
  try {
    client = new Client(server, {
      token: find("token").value || undefined,
      reconnect: RECONNECT,
      connectTimeoutMs: 0,
      timeoutMs: 10_000,
    });
  } catch (error) {
    client = null;
    tell(error.message, true);
    return;
  }
  const mine = client;
  mine.addEventListener("status", ({ detail: { status, info } }) => {
    if (client !== mine) return;
    if (status === "SERVER_UP" && !isAnswer) tellConnection(`Connected to ${info}`);
    if (status === "SERVER_DOWN") {
      const origins = `If it runs, its AllowedOrigins has to name this page: ${location.origin}`;
      const hosts = "This page may connect to the hosts of this server's clients only.";
      tellConnection(`No connection to ${server}: ${info} ${origins}. ${hosts}`, true);
    }
  });
}

async function subscribe() {
  if (!client) connect();
  const mine = client;
  if (!mine) return;
  try {
    const following = mine.subscribe(find("pattern").value);
    subscription?.end();
    subscription = following;
    waiting.length = 0;
    find("console-rows").replaceChildren();
    for await (const message of following) show(message);
  } catch (error) {
    if (client !== mine) return;
    const why = error instanceof StoppedError ? "The server refuses this client: " : "";
    tell(why + error.message, true);
  }
}

/** Show a message in the next frame, together with all others. */
function show(message) {
  if (!waiting.length) requestAnimationFrame(paint);
  waiting.push(message);
  if (waiting.length > ROWS_MAX) waiting.shift(); // a hidden page has no frames
}

function paint() {
  const rows = find("console-rows");
  rows.prepend(...waiting.splice(0).reverse().map(rowOf));
  while (rows.rows.length > ROWS_MAX) rows.deleteRow(-1);
}

function rowOf({ subject, content, fields, type, position }) {
  const text = typeof content === "string" ? content : `${content.length} bytes`;
  const shown = text.length > CHARACTERS_SHOWN_MAX
    ? `${text.slice(0, CHARACTERS_SHOWN_MAX)}… (${text.length} characters)`
    : text;
  const pairs = Object.entries(fields).map(([name, value]) => `${name}=${value}`).join(" ");
  return row(LABELS, [subject, shown, pairs, type, position ? at(position) : ""]);
}

async function publish() {
  if (!client) connect();
  if (!client) return;
  const subject = find("subject").value;
  try {
    const result = await client.publish(subject, find("content").value);
    tell(`Published ${subject} at ${at(result)}`);
  } catch (error) {
    tell(error.message, true);
  }
}

/** Have the forms of the console do what they say; `connected` is given each server and token. */
export function start(connected) {
  for (const [form, action] of Object.entries({ connect, subscribe, publish })) {
    find(form).onsubmit = (event) => {
      event.preventDefault();
      action();
      if (action === connect && client) {
        connected(find("server").value.trim(), find("token").value || undefined);
      }
    };
  }
}
