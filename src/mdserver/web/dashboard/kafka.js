/** What members say of Kafka, if it is their log: counts, and the topics of which most is unread. */

import { count, fillTable, find } from "./dom.js";

const ROWS_MAX = 50;

/** Show what `members`, each `{ name, kafka }`, say; nothing is shown while none has Kafka. */
export function showKafka(members) {
  const found = members.filter(({ kafka }) => kafka);
  find("kafka").hidden = !found.length;
  for (const link of document.querySelectorAll("a[href='#kafka']")) link.hidden = !found.length;
  if (!found.length) return;
  const sum = (of) => count(found.reduce((all, { kafka }) => all + of(kafka), 0));
  const errors = ["look", "read", "write"]
    .map((task) => `${sum((kafka) => kafka.errors[task])} to ${task}`).join(", ");
  const rows = found
    .flatMap(({ name, kafka }) => Object.entries(kafka.topics).map((topic) => [name, ...topic]))
    .sort(([, , one], [, , other]) => other.lag - one.lag);
  const all = rows.length > ROWS_MAX ? `, of ${count(rows.length)} topics the first` : "";
  find("kafka-state").textContent = `${sum(({ records }) => records)} records read, `
    + `${sum(({ waiting }) => waiting)} publications without a result, errors: ${errors}${all}`;
  fillTable(find("topic-rows"), rows.slice(0, ROWS_MAX).map(([name, topic, found]) => [
    topic,
    name,
    count(found.partitions),
    count(found.lag),
    count(found.lag_max),
  ]));
}
