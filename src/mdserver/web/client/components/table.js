/** `<md-table subject="/stocks/*" fields="bid,ask">`: a row for each subject, a column for each field. */

import { flash, SubjectElement } from "./element.js";

const ROWS = 100;
/** So many subjects beyond `rows` are counted. */
const LEFT_MAX = 1000;

/** @typedef {{row: HTMLTableRowElement, values: Map<string, string>, painted: Map<string, string>}} Row */

/** Shows the subjects of a pattern in their order; cells flash when a number rises or falls. */
export class MdTable extends SubjectElement {
  static observedAttributes = [...SubjectElement.observedAttributes, "fields", "rows", "caption"];

  /** @type {Map<string, Row>} */
  #rows = new Map();
  /** Rows whose picture is old. @type {Set<Row>} */
  #stale = new Set();
  /** Subjects beyond `rows`. @type {Set<string>} */
  #left = new Set();
  #rowsMax = ROWS;
  /** @type {string[]} */
  #fields = [];
  #body = document.createElement("tbody");
  #foot = document.createElement("td");

  get takesPatterns() {
    return true;
  }

  reset() {
    this.#rows = new Map();
    this.#stale = new Set();
    this.#left = new Set();
    this.#rowsMax = this.number("rows", ROWS);
    const given = this.getAttribute("fields") ?? this.field ?? "content";
    this.#fields = given.split(",").map((field) => field.trim());
    this.#begin();
  }

  /** @param {import("../message.js").Message} message */
  take(message) {
    let row = this.#rows.get(message.subject);
    if (row === undefined) {
      if (this.#rows.size >= this.#rowsMax) {
        if (this.#left.size < LEFT_MAX) this.#left.add(message.subject);
        return;
      }
      row = this.#insert(message.subject);
    }
    for (const field of this.#fields) {
      const text = this.textOf(message, field);
      if (text !== undefined) row.values.set(field, text);
    }
    this.#stale.add(row);
  }

  paint() {
    for (const { row, values, painted } of this.#stale) {
      this.#fields.forEach((field, column) => {
        const [before, value] = [painted.get(field), values.get(field)];
        if (value === undefined || value === before) return;
        const cell = row.cells[column + 1];
        cell.textContent = value;
        if (before !== undefined) flash(cell, before, value);
        painted.set(field, value);
      });
    }
    this.#stale.clear();
    const left = this.#left.size < LEFT_MAX ? this.#left.size : "many";
    this.#foot.textContent = left ? `and ${left} more` : "";
  }

  /** @param {string} subject */
  #insert(subject) {
    const row = document.createElement("tr");
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = subject;
    row.append(head, ...this.#fields.map(() => document.createElement("td")));
    const made = { row, values: new Map(), painted: new Map() };
    this.#rows.set(subject, made);
    // By bisection: a pattern may bring very many subjects at once.
    const rows = this.#body.rows;
    let [low, high] = [0, rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (/** @type {string} */ (rows[middle].cells[0].textContent) < subject) low = middle + 1;
      else high = middle;
    }
    this.#body.insertBefore(row, rows[low] ?? null);
    return made;
  }

  /** Show an empty table. */
  #begin() {
    const table = document.createElement("table");
    table.part.add("table");
    table.createCaption().textContent = this.getAttribute("caption") ?? this.subject;
    const head = table.createTHead().insertRow();
    for (const title of ["subject", ...this.#fields]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = title;
      head.append(cell);
    }
    this.#body = table.createTBody();
    this.#foot = table.createTFoot().insertRow().insertCell();
    this.#foot.colSpan = this.#fields.length + 1;
    this.content.replaceChildren(table);
  }
}
