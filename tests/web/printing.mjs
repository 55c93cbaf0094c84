/** What the programs of these tests share: values out, lines in. */

import { createInterface } from "node:readline";

/** Prints a value of a kind for the test. */
export function tell(kind, told = {}) {
  console.log(JSON.stringify({ kind, ...told }));
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** The next line that the test gives. */
export async function line() {
  return (await lines.next()).value;
}
