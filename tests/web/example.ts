import { Client, connect, PublishError, type Subscription } from "mdserver-client";
import { BinaryCodec } from "mdserver-client/binary";
import { type MdValue, useClient } from "mdserver-client/components";

const client: Client = await connect(["100 push.example.com", "50 wss://other.example.com:8801"], {
  token: async () => "a token",
  codec: BinaryCodec,
  reconnect: { quickMaxRetries: 5 },
});
const prices: Subscription = client.subscribe("/stocks/*", { history: 5 });
for await (const message of prices) {
  const bid: string | undefined = message.fields.bid;
  const text: string | Uint8Array = message.content;
  const seq: number | undefined = message.position?.seq;
  console.log(message.subject, bid, text, seq);
}
client.subscribe("/stocks/IBM", (message) => console.log(message.type.toLowerCase()));
try {
  const result = await client.publish("/orders/7", "buy", { closure: "7", qos: "GUARANTEED" });
  console.log(result.epoch, result.seq);
} catch (error) {
  if (error instanceof PublishError && !error.result.certain) console.log("nobody knows");
}
const tab: Client = await connect(undefined, { shared: "user 7", worker: "/js/worker.js" });
if (!tab.shared) console.log("a connection of its own");
// @ts-expect-error: fields are strings
await client.publish("/orders/7", "buy", { fields: { price: 7 } });
// @ts-expect-error: there is no such option
client.subscribe("/stocks/IBM", { hystery: 5 });
useClient(client);
const bid: string | undefined = document.querySelector<MdValue>("md-value")?.value;
await client.close();
