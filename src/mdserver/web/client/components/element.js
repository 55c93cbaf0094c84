/** What the elements have in common: a subject, a connection, and a state that everybody can see. */

import { ArgumentError } from "../errors.js";
import { connectionTo } from "./connection.js";

/**
 * @typedef {import("../message.js").Message} Message
 * @typedef {import("./connection.js").Connection} Connection
 */

const FLASH_MS = 800;

// A stylesheet that a script makes is permitted by every content security policy.
const STYLE = `
  :host { display: inline-block; max-width: 100%; overflow-x: auto; }
  :host([hidden]) { display: none; }
  :host([state="reconnecting"]) [part~="content"] { opacity: 0.5; }
  [part="trouble"] { font-size: 0.875em; font-style: italic; overflow-wrap: anywhere; }
  [part="trouble"]:empty { display: none; }
  @media (prefers-reduced-motion: no-preference) {
    :host, td { transition: background-color 0.4s; }
  }
  :host(.up), .up { background-color: rgb(0 160 80 / 0.3); }
  :host(.down), .down { background-color: rgb(220 40 40 / 0.3); }
  table { border-collapse: collapse; font: inherit; }
  caption { text-align: start; }
  th, td { padding: 0.15em 0.6em; text-align: start; border-bottom: 1px solid rgb(128 128 128 / 0.4); }
  td + td, th + th { text-align: end; font-variant-numeric: tabular-nums; }
  svg { display: inline-block; width: 8em; height: 1.5em; vertical-align: middle; overflow: visible; }
  polyline { fill: none; stroke: currentColor; stroke-width: 1.5; vector-effect: non-scaling-stroke; }
`;

/** @type {CSSStyleSheet | null} */
let sheet = null;

/** Return the stylesheet of all elements. */
function ownSheet() {
  if (sheet === null) {
    sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
  }
  return sheet;
}

/** Elements whose picture is old, painted together in the next frame. @type {Set<SubjectElement>} */
const stale = new Set();

/** Node, which makes pages at a server, knows no elements. */
const Base = globalThis.HTMLElement ?? /** @type {typeof HTMLElement} */ (class {});

/**
 * An element that shows live messages of a subject or pattern.
 *
 * Its attribute `state` is `connecting`, `live`, `reconnecting` or `error`; what is wrong stands in
 * it as one sentence. A subclass takes messages in (`take`) and shows them (`paint`), at most once
 * in each frame of the browser.
 */
export class SubjectElement extends Base {
  static observedAttributes = ["subject", "field", "server", "history", "conflate"];

  /** @type {Connection | null} */
  #connection = null;
  /** @type {import("../subscription.js").Subscription | null} */
  #subscription = null;
  #mistake = "";
  #isDenied = false;
  #isBeginning = false;
  #content;
  #trouble;

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [ownSheet()];
    this.#content = document.createElement("span");
    this.#content.part.add("content");
    this.#trouble = document.createElement("span");
    this.#trouble.part.add("trouble");
    this.#trouble.setAttribute("role", "status");
    root.append(this.#content, this.#trouble);
  }

  /** Where a subclass shows what it has. */
  get content() {
    return this.#content;
  }

  get subject() {
    return this.getAttribute("subject") ?? "";
  }

  get field() {
    return this.getAttribute("field");
  }

  connectedCallback() {
    this.#begin();
  }

  disconnectedCallback() {
    this.#end();
  }

  attributeChangedCallback() {
    this.#begin();
  }

  // For a subclass

  /** Forget what was shown: another subject is asked for. */
  reset() {}

  /** @param {Message} _message */
  take(_message) {}

  /** Show what was taken in. */
  paint() {}

  /** Whether it shows many subjects. */
  get takesPatterns() {
    return false;
  }

  /** How many cached messages are to come first. */
  get historyWanted() {
    return this.number("history", 0);
  }

  /** Have `paint` called in the next frame. */
  changed() {
    if (!stale.size) requestAnimationFrame(paintAll);
    stale.add(this);
  }

  /**
   * Return the number in an attribute.
   *
   * @param {string} name
   * @param {number} unlessGiven
   * @throws {ArgumentError}
   */
  number(name, unlessGiven) {
    const text = this.getAttribute(name);
    if (text === null) return unlessGiven;
    const value = Number(text);
    if (!text.trim() || !Number.isInteger(value) || value < 0) {
      throw new ArgumentError(`${name}="${text}" is no whole number such as ${name}="100".`);
    }
    return value;
  }

  /**
   * Return what a message says of a field, or its content; undefined when it says nothing of it.
   *
   * @param {Message} message
   * @param {string | null} field
   */
  textOf({ content, fields }, field) {
    if (field !== null && field !== "content") return fields[field];
    return typeof content === "string" ? content : `${content.length} bytes`;
  }

  // For the connection

  conditionChanged() {
    if (this.#connection === null) return;
    const { state, info } = this.#connection.condition;
    if (this.#isDenied && state === "live") this.#begin(); // perhaps permitted by now
    else if (this.#mistake) this.#show("error", this.#mistake);
    else if (state === "refused") this.#show("error", info);
    else this.#show(state, info);
  }

  /**
   * @param {string} subject
   * @param {string} reason
   */
  denied(subject, reason) {
    if (subject !== this.subject) return;
    this.#mistake = `${subject}: ${reason}`;
    this.#show("error", this.#mistake);
    this.#isDenied = true;
  }

  /** Begin, or begin anew, once all attributes are set. */
  #begin() {
    if (this.#isBeginning) return;
    this.#isBeginning = true;
    queueMicrotask(() => {
      this.#isBeginning = false;
      this.#end();
      if (this.isConnected) this.#subscribe();
    });
  }

  #subscribe() {
    this.#mistake = "";
    this.#isDenied = false;
    try {
      this.reset();
      this.changed();
      if (!this.subject) {
        throw new ArgumentError(`<${this.localName}> needs a subject, such as subject="/stocks/IBM".`);
      }
      if (!this.takesPatterns && this.subject.split("/").some((part) => /^\*\*?$/.test(part))) {
        const sentence = `'${this.subject}' is a pattern: <${this.localName}> shows one subject, <md-table> many.`;
        throw new ArgumentError(sentence);
      }
      const options = { history: this.historyWanted, conflationMs: this.number("conflate", 0) };
      const connection = connectionTo(this.getAttribute("server"));
      this.#subscription = connection.client.subscribe(this.subject, options, (message) => {
        this.take(message);
        this.changed();
      });
      this.#connection = connection;
      connection.join(this);
      this.conditionChanged();
    } catch (error) {
      this.#show("error", /** @type {Error} */ (error).message);
    }
  }

  #end() {
    this.#subscription?.end();
    this.#connection?.leave(this);
    this.#subscription = this.#connection = null;
  }

  /**
   * @param {string} state
   * @param {string} sentence
   */
  #show(state, sentence) {
    this.setAttribute("state", state);
    this.#trouble.textContent = sentence;
  }
}

function paintAll() {
  const now = [...stale];
  stale.clear();
  for (const element of now) element.paint();
}

/** @type {WeakMap<Element, ReturnType<typeof setTimeout>>} */
const flashes = new WeakMap();

/**
 * Give an element the class `up` or `down` for a moment when a number rose or fell.
 *
 * @param {Element} element
 * @param {string | undefined} before
 * @param {string} now
 */
export function flash(element, before, now) {
  const change = Number(now) - Number(before);
  if (!change) return; // also when one of them is no number
  clearTimeout(flashes.get(element));
  element.classList.toggle("up", change > 0);
  element.classList.toggle("down", change < 0);
  flashes.set(
    element,
    setTimeout(() => element.classList.remove("up", "down"), FLASH_MS),
  );
}
