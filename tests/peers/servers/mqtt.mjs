// The MQTT broker Aedes over WebSocket. Writes its port to stdout.
import { createServer } from "node:http";
import aedes from "aedes";
import { createWebSocketStream, WebSocketServer } from "ws";

const broker = aedes();
const http = createServer();
const server = new WebSocketServer({ server: http, perMessageDeflate: false });
server.on("connection", (socket, request) => broker.handle(createWebSocketStream(socket), request));
http.listen(0, "127.0.0.1", 4096, () => console.log(http.address().port));
