/** Buses on their routes, drawn from what the server says: no map comes from anywhere else. */

import { Client } from "../client/mdserver.js";
import { showState } from "./state.js";

const MOVE_MS = 1000; // a position comes each second; a bus glides to it meanwhile
const GONE_MS = 10_000;
const client = new Client();
const live = showState(client, "No buses come: `make demo` sends some.");
const canvas = document.getElementById("map");
const pen = canvas.getContext("2d");
const routes = new Map(); // subject -> points [longitude, latitude]
const buses = new Map(); // subject -> {route, from, to, since}
const box = { west: Infinity, east: -Infinity, south: Infinity, north: -Infinity };
let clock = "";

client.subscribe("/routes/*", ({ subject, content }) => {
  const points = pointsOf(content);
  if (!points) return;
  routes.set(subject, points);
  for (const [lon, lat] of points) {
    box.west = Math.min(box.west, lon);
    box.east = Math.max(box.east, lon);
    box.south = Math.min(box.south, lat);
    box.north = Math.max(box.north, lat);
  }
});
client.subscribe("/vehicles/clock", ({ content }) => (clock = content));
client.subscribe("/vehicles/*/*", ({ subject, content, fields }) => {
  const to = [Number(fields.lon), Number(fields.lat)];
  const bus = buses.get(subject);
  const now = performance.now();
  buses.set(subject, { route: content, from: bus ? at(bus, now) : to, to, since: now });
  live();
});

/** Return the points of a route, or null if the content is something else. */
function pointsOf(content) {
  let points = null;
  try {
    points = JSON.parse(content);
  } catch {
    return null;
  }
  const isPoint = (each) => Array.isArray(each) && each.length === 2 && each.every(Number.isFinite);
  return Array.isArray(points) && points.length && points.every(isPoint) ? points : null;
}

/** Where a bus is at a time, between the last two positions that were told. */
function at({ from, to, since }, now) {
  const share = Math.min((now - since) / MOVE_MS, 1);
  return from.map((start, axis) => start + (to[axis] - start) * share);
}

/** Turn longitude and latitude into a place on the canvas. */
function projection(width, height) {
  const narrow = Math.cos(((box.south + box.north) / 2) * (Math.PI / 180));
  const scale = Math.min(
    (width - 20) / ((box.east - box.west) * narrow),
    (height - 20) / (box.north - box.south),
  );
  return ([lon, lat]) => [10 + (lon - box.west) * narrow * scale, 10 + (box.north - lat) * scale];
}

const colour = (route) => `hsl(${(Number.parseInt(route, 10) * 47) % 360} 70% 45%)`;

function draw(now) {
  requestAnimationFrame(draw); // first, so that a mistake in one frame does not end all
  const ratio = devicePixelRatio;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  [canvas.width, canvas.height] = [width * ratio, height * ratio];
  pen.scale(ratio, ratio);
  if (routes.size) {
    const place = projection(width, height);
    pen.globalAlpha = 0.35;
    for (const [subject, points] of routes) {
      pen.strokeStyle = colour(subject.split("/")[2]);
      pen.beginPath();
      for (const point of points) pen.lineTo(...place(point));
      pen.stroke();
    }
    pen.globalAlpha = 1;
    for (const [subject, bus] of buses) {
      if (now - bus.since > GONE_MS) buses.delete(subject);
      else drawBus(bus.route, place(at(bus, now)));
    }
    const figures = `${clock}: ${buses.size} buses on ${routes.size} routes`;
    document.getElementById("figures").textContent = figures;
    canvas.setAttribute("aria-label", figures);
  }
}

function drawBus(route, [x, y]) {
  pen.fillStyle = colour(route);
  pen.beginPath();
  pen.arc(x, y, 8, 0, 2 * Math.PI);
  pen.fill();
  pen.fillStyle = "#fff";
  pen.font = "10px system-ui, sans-serif";
  [pen.textAlign, pen.textBaseline] = ["center", "middle"];
  pen.fillText(route, x, y);
}

requestAnimationFrame(draw);
