/** `<md-sparkline subject="/stocks/IBM" field="bid">`: how a number went, as a line. */

import { SubjectElement } from "./element.js";

const POINTS = 60;
const HEIGHT = 20;
const SVG = "http://www.w3.org/2000/svg";

/** Draws the last `points` numbers; begins with those that the server has in its cache. */
export class MdSparkline extends SubjectElement {
  static observedAttributes = [...SubjectElement.observedAttributes, "points"];

  /** @type {number[]} */
  #values = [];
  #pointsMax = POINTS;
  #svg = document.createElementNS(SVG, "svg");
  #line = document.createElementNS(SVG, "polyline");

  constructor() {
    super();
    this.#svg.setAttribute("role", "img");
    this.#svg.setAttribute("preserveAspectRatio", "none");
    this.#svg.append(this.#line);
    this.content.append(this.#svg);
  }

  get historyWanted() {
    return this.number("history", this.number("points", POINTS));
  }

  reset() {
    this.#values = [];
    this.#pointsMax = Math.max(2, this.number("points", POINTS));
  }

  /** @param {import("../message.js").Message} message */
  take(message) {
    const text = this.textOf(message, this.field);
    const value = Number(text);
    if (text === undefined || text === "" || !Number.isFinite(value)) return;
    this.#values.push(value);
    if (this.#values.length > this.#pointsMax) this.#values.shift();
  }

  paint() {
    const values = this.#values;
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const scale = high > low ? HEIGHT / (high - low) : 0;
    const points = values.map((value, x) => `${x},${HEIGHT - (value - low) * scale}`);
    this.#svg.setAttribute("viewBox", `0 0 ${Math.max(1, this.#pointsMax - 1)} ${HEIGHT}`);
    this.#line.setAttribute("points", points.join(" "));
    const what = this.field ? `${this.field} of ${this.subject}` : this.subject;
    const said = values.length
      ? `${what}: ${values.length} values from ${low} to ${high}, now ${values[values.length - 1]}`
      : `${what}: no values yet`;
    this.#svg.setAttribute("aria-label", said);
  }
}
