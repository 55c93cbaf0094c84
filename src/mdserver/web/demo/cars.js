/** Cars that write to Kafka, what rules and another job make of it, and orders back to the cars. */

import { Client } from "../client/mdserver.js";
import { showState } from "./state.js";

const LINES_MAX = 30;
const CARS_MAX = 500;
const FAST = 90;
const find = (id) => document.getElementById(id);
const client = new Client();
const live = showState(client, "No cars come: docs/tutorials/kafka.md says how they do.");
const cars = new Map(); // name -> the cells of its row, and what its button orders

client.subscribe("/vehicles/*/*", ({ subject, content }) => {
  const [, , name, what] = subject.split("/");
  const car = carOf(name);
  if (car === null) return;
  if (what === "speed") showSpeed(car, content);
  if (what === "position") car.place.textContent = content;
});
client.subscribe("/averages/*", ({ subject, content }) => {
  const car = carOf(subject.split("/")[2]);
  if (car !== null) car.average.textContent = content;
});
client.subscribe("/notifications/*", { history: 5 }, ({ content, fields }) => {
  const line = document.createElement("li");
  line.textContent = content;
  line.dataset.rule = fields.rule ?? "";
  find("notifications").prepend(line);
  while (find("notifications").children.length > LINES_MAX) find("notifications").lastChild.remove();
});

function showSpeed(car, content) {
  car.speed.textContent = content;
  car.speed.className = Number(content) > FAST ? "down" : "";
  car.order = Number(content) === 0 ? "go" : "stop";
  car.button.textContent = car.order;
  live();
}

/** Return the car of this name, with a row of the table; null if there are too many. */
function carOf(name) {
  if (cars.has(name)) return cars.get(name);
  if (cars.size >= CARS_MAX) return null;
  const row = document.createElement("tr");
  const head = Object.assign(document.createElement("th"), { scope: "row", textContent: name });
  const place = head.appendChild(document.createElement("small"));
  const button = document.createElement("button");
  row.append(head);
  const car = { place, button, speed: row.insertCell(), average: row.insertCell(), order: "stop" };
  row.insertCell().append(button);
  row.id = `car-${name}`;
  button.textContent = car.order;
  button.setAttribute("aria-label", `Order ${name} to stop or go`);
  button.onclick = () => command(name, car);
  cars.set(name, car);
  const after = [...find("cars").tBodies[0].rows].find((each) => each.id > row.id);
  find("cars").tBodies[0].insertBefore(row, after ?? null);
  return car;
}

/** Publish an order: a record of the topic `commands`, which the car reads. */
async function command(name, car) {
  const { order } = car;
  car.button.disabled = true;
  try {
    await client.publish(`/commands/${name}`, order);
    find("outcome").textContent = "";
  } catch (error) {
    find("outcome").textContent = `Not sent to ${name}: ${error.message}`;
  } finally {
    car.button.disabled = false;
  }
}
