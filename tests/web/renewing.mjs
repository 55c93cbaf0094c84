/** A client that asks the test for its tokens. */

import { Client } from "../../src/mdserver/web/client/index.js";
import { line, tell } from "./printing.mjs";

const client = new Client(process.argv[2], {
  reconnect: "service",
  token: async () => {
    tell("token wanted");
    const token = await line();
    if (token === "none") throw new Error("the test has none");
    return token;
  },
});
let downs = 0;
client.addEventListener("status", async ({ detail }) => {
  tell("status", detail);
  if (detail.status === "SERVER_DOWN") downs += 1;
  if (detail.status === "SERVER_UP") {
    tell("connected");
    if (!downs) return;
    tell("published", await client.publish("/a/b", "1"));
    try {
      await client.subscribe("/b/c").next();
    } catch (error) {
      tell("denied", { reason: error.message });
    }
  }
});
