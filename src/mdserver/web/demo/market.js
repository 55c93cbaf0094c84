/** Prices as they change: one subscription, painted once in each frame of the browser. */

import { Client } from "../client/mdserver.js";
import { showState } from "./state.js";

const COLUMNS = ["price", "date", "change", "low", "high"];
const find = (id) => document.getElementById(id);

const client = new Client();
const live = showState(client, "No prices come: `make demo` replays some.");
const rows = new Map(); // subject -> {cells, values, changed}
const changed = new Set(); // rows that were not painted yet
let subscription = null;
let [messages, cells, frames] = [0, 0, 0];

/** Take a message in: it is painted in the next frame, together with all others. */
function take({ subject, content, fields }) {
  let row = rows.get(subject);
  if (row === undefined) {
    row = newRow(subject);
    rows.set(subject, row);
    live();
  }
  Object.assign(row.values, fields, { price: content });
  changed.add(row);
  messages += 1;
}

/** Make the row of `/market/IBM/2000-01`, in the table of IBM. */
function newRow(subject) {
  const [, , symbol, start] = subject.split("/");
  const id = `market-${symbol}`; // so that no symbol is the name of another element
  let table = find(id);
  if (table === null) {
    table = document.createElement("table");
    table.id = id;
    table.createCaption().textContent = symbol;
    const head = table.createTHead().insertRow();
    for (const name of ["since", ...COLUMNS]) {
      head.append(Object.assign(document.createElement("th"), { textContent: name, scope: "col" }));
    }
    find("market").append(table);
    table.createTBody();
  }
  const row = table.tBodies[0].insertRow();
  row.insertCell().textContent = start;
  return { cells: COLUMNS.map(() => row.insertCell()), values: {}, shown: {} };
}

/** Show what changed since the last frame. */
function paint() {
  frames += 1;
  for (const { cells: own, values, shown } of changed) {
    COLUMNS.forEach((column, at) => {
      if (values[column] === shown[column]) return;
      const cell = own[at];
      cell.textContent = values[column];
      cells += 1;
      if (column === "price") {
        cell.className = Number(values.price) < Number(shown.price) ? "down" : "up";
      }
      shown[column] = values[column];
    });
  }
  changed.clear();
  requestAnimationFrame(paint);
}

function subscribe() {
  subscription?.end();
  const conflationMs = Number(find("conflation").value);
  subscription = client.subscribe("/market/**", { conflationMs }, take);
}

setInterval(() => {
  find("figures").textContent = `${messages} messages, ${cells} cells, ${frames} frames a second`;
  [messages, cells, frames] = [0, 0, 0];
}, 1000);
find("conflation").onchange = subscribe;
subscribe();
paint();
