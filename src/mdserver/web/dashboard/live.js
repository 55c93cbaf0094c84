/** What members publish of themselves (`Monitor = PUSH`), over this product's own client. */

const STATISTICS = "/__mdserver__/statistics/*";
const EVENTS = "/__mdserver__/events/*";
const RECONNECT = { quickInitialDelayMs: 1000, timeIntervalMs: 2000, maxDelayMs: 30_000 };
const MISSED_MAX = 3; // intervals without a report after which a member counts as away

/** Follows the statistics and events of all members, as far as the client's rights allow. */
export class Live {
  reports = new Map(); // member -> its latest report, and when it came
  #client = null;
  #handlers;

  /**
   * `Client` is the class of the JavaScript client. `handlers` are functions: `report` gets each
   * report, `events` the member and its events, `refused` why nothing can be followed, and
   * `status`, if there is one, the statuses of the client.
   */
  constructor(Client, handlers) {
    this.Client = Client;
    this.#handlers = handlers;
  }

  /** Follow at a server, and no longer at the one before. */
  follow(server, token) {
    this.stop();
    let client;
    try {
      client = new this.Client(server, { token, reconnect: RECONNECT, connectTimeoutMs: 0 });
    } catch (error) {
      this.#handlers.refused(error.message);
      return;
    }
    this.#client = client;
    client.addEventListener("status", ({ detail }) => {
      if (this.#client === client) this.#handlers.status?.(detail);
    });
    this.#read(client, STATISTICS, (report) => {
      this.reports.set(report.member, { report, at: performance.now() });
      this.#handlers.report(report);
    });
    this.#read(client, EVENTS, ({ member, events }) => this.#handlers.events(member, events));
  }

  stop() {
    this.#client?.close();
    this.#client = null;
    this.reports.clear();
  }

  /** Return the latest reports of the members that still report, by member. */
  current() {
    const now = performance.now();
    for (const [member, { report, at }] of this.reports) {
      if (now - at > MISSED_MAX * Math.max(report.interval_ms, 1000)) this.reports.delete(member);
    }
    return [...this.reports.values()].map(({ report }) => report)
      .sort((a, b) => (a.member < b.member ? -1 : 1));
  }

  async #read(client, pattern, take) {
    try {
      for await (const { content } of client.subscribe(pattern)) {
        if (this.#client !== client) return;
        take(JSON.parse(content));
      }
    } catch (error) {
      if (this.#client === client) this.#handlers.refused(error.message);
    }
  }
}

/** Return events in words, with those of one kind that happened together in one line. */
export function eventsInWords(name, events) {
  const kinds = new Map();
  for (const { event, time: _, ...values } of events) {
    if (!kinds.has(event)) kinds.set(event, []);
    kinds.get(event).push(values);
  }
  return [...kinds].map(([event, all]) => {
    if (all.length > 1) return `${name}: ${event}, ${all.length} times`;
    const told = Object.entries(all[0]).filter(([, value]) => value !== null)
      .map(([key, value]) => `${key}=${value}`);
    return [`${name}: ${event}`, ...told].join(" ");
  });
}
