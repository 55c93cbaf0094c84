// A server with `ws` that sends each message to all other clients. Writes its port to stdout.
import { createServer } from "node:http";
import { WebSocket, WebSocketServer } from "ws";

const http = createServer();
const server = new WebSocketServer({ server: http, perMessageDeflate: false });
server.on("connection", (socket) => {
  socket.on("message", (data, binary) => {
    for (const client of server.clients) {
      if (client !== socket && client.readyState === WebSocket.OPEN) client.send(data, { binary });
    }
  });
});
http.listen(0, "127.0.0.1", 4096, () => console.log(http.address().port));
