/** `<md-value subject="/stocks/IBM" field="bid">`: one value, as text. */

import { flash, SubjectElement } from "./element.js";

/** Shows the content of a subject, or one of its fields. It flashes when a number rises or falls. */
export class MdValue extends SubjectElement {
  static observedAttributes = [...SubjectElement.observedAttributes, "decimals"];

  /** @type {string | undefined} */
  #value;
  /** @type {string | undefined} */
  #painted;

  /** @type {number | null} */
  #decimals = null;

  /** The value as it came; undefined as long as there is none. */
  get value() {
    return this.#value;
  }

  reset() {
    this.#decimals = this.hasAttribute("decimals") ? Math.min(this.number("decimals", 0), 20) : null;
    this.#value = this.#painted = undefined;
  }

  /** @param {import("../message.js").Message} message */
  take(message) {
    this.#value = this.textOf(message, this.field) ?? this.#value;
  }

  paint() {
    if (this.#value === undefined) {
      this.content.textContent = "";
      return;
    }
    const isNumber = this.#decimals !== null && Number.isFinite(Number(this.#value));
    this.content.textContent = isNumber
      ? Number(this.#value).toFixed(/** @type {number} */ (this.#decimals))
      : this.#value;
    if (this.#painted !== undefined) flash(this, this.#painted, this.#value);
    this.#painted = this.#value;
  }
}
