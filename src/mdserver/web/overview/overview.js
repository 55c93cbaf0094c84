/**
 * The page at `/overview/` of every server: what its members publish of themselves, to look at.
 *
 * It is a client like any other: it asks no monitor, orders nothing, and sees what its rights name.
 */

import { Client } from "../client/mdserver.js";
import { count, fillFigures, fillTable, find, happened } from "./dom.js";
import { showKafka } from "./kafka.js";
import { Live, eventsInWords } from "./live.js";
import { Figures, short } from "./plots.js";

const LOOK_MS = 1000;
const SUMS = {
  sessions: "sessions",
  slow_consumers: "slow",
  subscriptions: "subscriptions",
  waiting_publications: "publications without a result",
};
const COPIES = { // of which every member has its own
  subjects: "subjects",
  cached_messages: "messages in the cache",
  cache_bytes: "bytes in the cache",
};

const plots = new Figures(find);
let isStale = false; // reports came that are not shown yet
let shown = 0; // members
let isRefused = false;
let down = null; // why there is no connection

const live = new Live(Client, {
  report() {
    isStale = true;
    isRefused = false;
  },
  events(member, events) {
    for (const text of eventsInWords(member, events)) happened(text);
  },
  status({ status, info }) {
    if (status === "SERVER_UP") down = null;
    else if (status === "SERVER_DOWN") down = info ?? "";
    else return;
    isStale = true;
  },
  refused(reason) {
    isRefused = true;
    find("state").textContent = reason;
    find("state").className = "warning";
  },
});

const sum = (reports, part, name) => reports.reduce((all, one) => all + (one[part][name] ?? 0), 0);
const most = (values) => Math.max(0, ...values);

function show(reports) {
  const gauges = [
    ...Object.entries(SUMS).map(([name, label]) => [label, sum(reports, "now", name)]),
    ...Object.entries(COPIES).map(([name, label]) => [label, most(reports.map(({ now }) => now[name]))]),
    ["members", reports.length],
  ];
  fillFigures(gauges.map(([label, value]) => [label, short(value)]));
  showKafka(reports.map(({ node, kafka }) => ({ name: node, kafka })));
  fillTable(find("member-rows"), reports.map(({ member, node, now, rates, unready, warning }) => [
    member === node ? node : `${node} ${member}`,
    count(now.sessions),
    short(rates.messages_in),
    short(rates.messages_out),
    count(now.coordinated_groups),
    count(now.behind_entries ?? 0),
    unready ?? warning ?? "ready",
  ]));
}

function plot(reports) {
  const sums = (part, names) => Object.fromEntries(names.map((name) => [name, sum(reports, part, name)]));
  const slowest = (name) => most(reports.map(({ latency }) => latency[name].p99_s));
  plots.add(
    Date.now(),
    sums("rates", ["messages_in", "messages_out", "bytes_in", "bytes_out"]),
    sums("now", ["sessions", "slow_consumers"]),
    [slowest("publication_to_commit"), slowest("commit_to_socket")],
  );
}

/** Show once a second what came, however many members there are. */
function look() {
  const reports = live.current();
  if (!isStale && reports.length === shown) return;
  isStale = false;
  shown = reports.length;
  show(reports);
  if (reports.length) plot(reports);
  if (isRefused) return;
  if (down !== null) {
    find("state").className = "warning";
    find("state").textContent = `No connection: ${down}`;
    return;
  }
  find("state").className = reports.length ? "" : "warning";
  find("state").textContent = reports.length
    ? `Live: ${count(reports.length)} ${reports.length === 1 ? "member publishes" : "members publish"} figures`
    : "No member publishes its figures now";
}

find("access").onsubmit = (event) => {
  event.preventDefault();
  isRefused = false;
  find("state").textContent = "Connecting";
  live.follow(location.origin, find("token").value || undefined);
};
live.follow(location.origin);
setInterval(look, LOOK_MS);
