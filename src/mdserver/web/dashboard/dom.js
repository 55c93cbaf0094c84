/** Small pieces of the page: elements, rows of tables, and questions to the member. */

const ASK_TIMEOUT_MS = 10_000;
const EVENTS_MAX = 200;

// A page may have been opened with user and password in its address, which `fetch` refuses.
const at = (path) => new URL(path, location.origin + location.pathname);

export const find = (id) => document.getElementById(id);

/** Return an element with a text, which is shown as it is, whatever it holds. */
export function element(name, text = "", className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

/** Replace the rows of a table body. `rows` are arrays of texts in the order of the columns. */
export function fillTable(body, rows) {
  const labels = [...body.closest("table").querySelectorAll("th")].map((head) => head.textContent);
  body.replaceChildren(...rows.map((texts) => row(labels, texts)));
}

/** Return a row of cells that know the name of their column, for narrow screens. */
export function row(labels, texts) {
  const made = document.createElement("tr");
  texts.forEach((text, column) => {
    const cell = element("td", text);
    cell.dataset.label = labels[column];
    made.append(cell);
  });
  return made;
}

/** Show figures; `figures` are pairs of a label and a text. */
export function fillFigures(figures) {
  find("gauges").replaceChildren(
    ...figures.map(([label, text]) => {
      const made = document.createElement("div");
      made.append(element("dt", label), element("dd", text));
      return made;
    }),
  );
}

/** Add an event, the newest first. */
export function happened(text, isWarning = false) {
  const item = element("li", "", isWarning ? "warning" : "");
  item.append(element("time", new Date().toLocaleTimeString()), ` ${text}`);
  const rows = find("event-rows");
  rows.prepend(item);
  while (rows.children.length > EVENTS_MAX) rows.lastChild.remove();
}

/** Ask the member; return the value of a JSON answer. Throws an Error with what it said instead. */
export async function ask(path) {
  const answer = await fetch(at(path), { signal: AbortSignal.timeout(ASK_TIMEOUT_MS) });
  if (!answer.ok) throw new Error(`${answer.status}: ${(await answer.text()).trim()}`);
  return answer.json();
}

/** Return what a health path says, and whether it is well. */
export async function health() {
  const answer = await fetch(at("health/ready"), { signal: AbortSignal.timeout(ASK_TIMEOUT_MS) });
  return { isReady: answer.ok, text: (await answer.text()).trim() };
}

export const count = (value) => value.toLocaleString();
export const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;
