/**
 * The page that a monitor shows at `/`.
 *
 * What members publish of themselves comes over WebSocket, if this page may subscribe there
 * (`live.js`). The rest it asks the member for, and all of it, more often, while nothing is published.
 */

import { Client } from "./client/mdserver.js";
import { showCluster, showHealth, showLag } from "./cluster.js";
import * as terminal from "./console.js";
import { ask, count, element, fillFigures, fillTable, find, happened, health, seconds } from "./dom.js";
import { showKafka } from "./kafka.js";
import { Live, eventsInWords } from "./live.js";
import { BarPlot, Figures, short } from "./plots.js";

const LOOK_MS = 2000;
const LIVE_LOOK_MS = 5000; // while the member publishes its statistics
const LIVE_MISSED_MAX = 3; // intervals
const SUBJECTS_MS = 10_000; // the member looks at all subjects for it
const EVENTS_PAUSE_MS = 500; // what happens in a cluster seldom happens alone
const PAGE_ROWS = 50;
const SILENT_MS = 60_000;
const INDICATORS = {
  messages_in: "messages in, a second",
  messages_out: "messages out, a second",
  bytes_in: "bytes in, a second",
  bytes_out: "bytes out, a second",
  sessions: "sessions",
  connections: "connections, a second",
  disconnections: "disconnections, a second",
};
const GAUGES = {
  sessions: "sessions",
  slow_consumers: "slow",
  subscriptions: "subscriptions",
  subjects: "subjects",
  cached_messages: "messages in the cache",
  cache_bytes: "bytes in the cache",
  waiting_publications: "publications without a result",
  members_in_sight: "members in sight",
};

const plots = new Figures(find);
const windows = new BarPlot(
  find("windows"),
  [{ label: "maximum", colour: "--second" }, { label: "average", colour: "--first" }],
  "",
);

let statistics = null;
let configuration = {};
let subjectsDue = 0;
let offset = 0;
let wasAway = false;
let own = null; // the member's address, by which its reports are known
let names = new Map();
let reported = { at: -Infinity, interval_ms: 0 }; // its last report
let lookNow = () => {};

const live = new Live(Client, {
  report(report) {
    showLag(live.current());
    if (report.member === own) showReport(report);
  },
  events(member, events) {
    for (const text of eventsInWords(names.get(member) ?? member, events)) happened(text);
    lookNow();
  },
  refused(reason) {
    find("source").textContent = `This page asks every ${seconds(LOOK_MS)}: ${reason}`;
  },
});
const isLive = () =>
  performance.now() - reported.at < LIVE_MISSED_MAX * Math.max(reported.interval_ms, 1000);

// Statistics

/** Return the averages of windows that do not overlap: [start and end as ms ago, average, maximum]. */
function apart(indicator) {
  let end = 0;
  let sum = 0;
  const found = [];
  for (const [name, { average, maximum, seconds: sampled }] of Object.entries(indicator)) {
    if (sampled <= end) continue;
    const part = Math.max(0, (average * sampled - sum) / (sampled - end));
    found.push({ name, from: sampled * 1000, to: end * 1000, average: part, maximum, sampled });
    end = sampled;
    sum = average * sampled;
  }
  return found;
}

/** Begin the plots with what the windows say about the time before this page. */
function seed({ time, windows: found }) {
  for (const [plot, names] of [
    [plots.messages, ["messages_in", "messages_out"]],
    [plots.bytes, ["bytes_in", "bytes_out"]],
    [plots.connected, ["sessions", null]],
  ]) {
    const [first, second] = names.map((name) => (name ? apart(found[name]) : []));
    for (const [at, { from, to, average }] of [...first.entries()].reverse()) {
      if (to >= Figures.SHOWN_MS) continue;
      const values = [average, second[at]?.average ?? 0];
      for (const ago of [Math.min(from, Figures.SHOWN_MS), to + 1]) plot.add(time - ago, values);
    }
  }
}

function showGauges(gauges) {
  fillFigures(Object.entries(GAUGES).map(([name, label]) => [label, short(gauges[name] ?? 0)]));
}

const latenciesOf = ({ publication_to_commit: commit, commit_to_socket: socket }) =>
  [commit.p99_s, socket.p99_s];

/** Show what the member published: its rates and latencies are those since its report before. */
function showReport({ time, interval_ms: interval, now, rates, latency }) {
  reported = { at: performance.now(), interval_ms: interval };
  find("source").textContent = `Live: this member publishes its figures every ${seconds(interval)}.`;
  showGauges(now);
  plots.add(time, rates, now, latenciesOf(latency));
}

function showStatistics(now) {
  const old = statistics;
  statistics = now;
  if (old && isLive()) return;
  showGauges(now.now);
  if (!old || now.time <= old.time || now.total.messages_in < old.total.messages_in) {
    if (!old) seed(now);
    return;
  }
  const elapsed = (now.time - old.time) / 1000;
  const rate = (name) => Math.max(0, now.total[name] - old.total[name]) / elapsed;
  const rates = Object.fromEntries(Object.keys(now.total).map((name) => [name, rate(name)]));
  plots.add(now.time, rates, now.now, latenciesOf(now.latency));
  find("source").textContent ||= `This page asks every ${seconds(LOOK_MS)}.`;
}

function showWindows() {
  if (!statistics) return;
  const name = find("indicator").value;
  windows.unit = INDICATORS[name].includes("bytes") ? "B" : "";
  windows.show(
    apart(statistics.windows[name]).map(({ name: label, average, maximum }) => ({
      label,
      note: `up to ${label} ago`,
      values: [Math.max(average, maximum), average],
    })).reverse(),
  );
}

function tellCounts(old, now) {
  if (!old) return;
  for (const [what, title] of [["refused", "refused"], ["closed", "sessions ended with code"]]) {
    for (const [reason, times] of Object.entries(now[what])) {
      const more = times - (old[what][reason] ?? 0);
      if (more > 0) happened(`${title} ${reason}: ${count(more)} times`, true);
    }
  }
}

// Tables

/** Return in words why a session is slow; an empty text if it is not. */
function why({ waiting_ms: waiting, outbox_bytes: bytes, silent_ms: silent }) {
  const found = [];
  if (waiting > 0) found.push(`its socket has taken nothing for ${seconds(waiting)}`);
  if (bytes > 0) found.push(`${count(bytes)} bytes wait for it`);
  if (silent > SILENT_MS) found.push(`nothing was heard of it for ${seconds(silent)}`);
  return found.join(", ");
}

async function showSessions() {
  const slow = find("slow").checked ? "&slow=true" : "";
  const page = `limit=${PAGE_ROWS + 1}&offset=${offset}`;
  const wanted = find("wanted").value.trim();
  // The name of a session ends with its number, and an address never does.
  const by = wanted && `&${/-\d+$/.test(wanted) ? "session" : "address"}=${encodeURIComponent(wanted)}`;
  const rows = await ask(`sessions?sort=${find("sort").value}&${page}${slow}${by}`);
  find("previous").disabled = offset === 0;
  find("next").disabled = rows.length <= PAGE_ROWS;
  const shown = rows.slice(0, PAGE_ROWS);
  const all = slow ? statistics.now.slow_consumers : statistics.now.sessions;
  const range = `${count(offset + 1)} to ${count(offset + shown.length)}`;
  if (!shown.length) find("page").textContent = "none";
  else if (!wanted) find("page").textContent = `${range} of ${count(all)}`;
  else find("page").textContent = offset || rows.length > PAGE_ROWS ? range : `${count(shown.length)} found`;
  fillTable(find("session-rows"), shown.map((session) => [
    `${session.session} ${session.address} ${session.transport}`,
    [session.client, session.user].filter(Boolean).join(" "),
    count(session.outbox_bytes),
    count(session.subscriptions),
    why(session),
  ]));
}

async function showSubjects() {
  const rows = await ask(`subjects?limit=20&sort=${find("subject-sort").value}`);
  fillTable(find("subject-rows"), rows.map((subject) => [
    subject.subject,
    subject.per_second.toFixed(1),
    count(subject.subscribers),
    count(subject.messages),
    count(subject.bytes),
  ]));
}

// Looking again and again

async function look() {
  const old = statistics;
  const [now, cluster, state] = await Promise.all([
    ask("statistics"),
    ask("cluster/status"),
    health(),
  ]);
  showStatistics(now);
  tellCounts(old, now);
  showWindows();
  own = cluster.members[0].address; // a member lists itself first
  names = new Map(cluster.members.map(({ address, name }) => [address, name]));
  showCluster(cluster);
  showHealth(state, configuration);
  showKafka([{ name: now.node, kafka: now.kafka }]);
  await showSessions();
  if (Date.now() >= subjectsDue) {
    await showSubjects();
    subjectsDue = Date.now() + SUBJECTS_MS;
  }
}

async function begin() {
  const version = await ask("version");
  configuration = await ask("configuration");
  document.title = `${version.node} · mdserver`;
  find("node").textContent = version.node;
  const since = new Date(version.started).toLocaleString();
  find("facts").textContent = `mdserver ${version.version}, running since ${since}`;
  terminal.propose(version.clients);
  live.follow(find("server").value);
}

/** Look again and again while somebody sees the page; one question at a time. */
async function follow() {
  for (let isKnown = false; ; ) {
    const started = performance.now();
    try {
      if (!document.hidden) {
        if (!isKnown) await begin();
        isKnown = true;
        await look();
        if (wasAway) happened("this member answers again");
        wasAway = false;
      }
    } catch (error) {
      find("health").textContent = `No answer from this member (${error.message}). Asking again.`;
      find("health").className = "warning";
      if (!wasAway) happened("this member does not answer", true);
      wasAway = true;
      isKnown = false;
    }
    const left = (isLive() ? LIVE_LOOK_MS : LOOK_MS) - (performance.now() - started);
    await new Promise((resolve) => {
      setTimeout(resolve, Math.max(200, left));
      lookNow = () => setTimeout(resolve, EVENTS_PAUSE_MS);
    });
    lookNow = () => {};
  }
}

function turn(by) {
  offset = Math.max(0, offset + by);
  showSessions().catch(() => {});
}

for (const [name, label] of Object.entries(INDICATORS)) {
  const option = element("option", label);
  option.value = name;
  find("indicator").append(option);
}
find("indicator").onchange = showWindows;
find("previous").onclick = () => turn(-PAGE_ROWS);
find("next").onclick = () => turn(PAGE_ROWS);
find("choice").onsubmit = (event) => event.preventDefault(); // `change` comes before it
for (const id of ["sort", "slow", "wanted"]) {
  find(id).onchange = () => {
    offset = 0;
    turn(0);
  };
}
find("subject-sort").onchange = () => showSubjects().catch(() => {});
terminal.start((server, token) => live.follow(server, token));
follow();
