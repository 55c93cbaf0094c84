/** Prints the messages and statuses of a subscription. */

import { Client } from "../../src/mdserver/web/client/index.js";
import { tell } from "./printing.mjs";

const client = new Client(process.argv[2], { reconnect: "service" });
client.addEventListener("status", ({ detail }) => tell("status", detail));
const subscription = client.subscribe("/a/b", ({ content }) => tell("message", { content }));
await subscription.confirmed();
tell("subscribed");
