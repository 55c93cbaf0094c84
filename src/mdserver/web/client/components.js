/** Elements that show live subjects without a line of script (docs/javascript.md, "Elements"). */

import { MdSparkline } from "./components/sparkline.js";
import { MdTable } from "./components/table.js";
import { MdValue } from "./components/value.js";

export { useClient } from "./components/connection.js";
export { MdSparkline, MdTable, MdValue };

const elements = { "md-value": MdValue, "md-table": MdTable, "md-sparkline": MdSparkline };

for (const [name, element] of Object.entries(elements)) {
  // A page may load this from two places; the first one counts.
  if (globalThis.customElements && !customElements.get(name)) customElements.define(name, element);
}
