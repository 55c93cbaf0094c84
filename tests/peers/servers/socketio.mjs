// A Socket.IO server with the three events that the adapter expects. Writes its port to stdout.
import { createServer } from "node:http";
import { Server } from "socket.io";

const http = createServer();
const io = new Server(http, { transports: ["websocket"], perMessageDeflate: false });
io.on("connection", (socket) => {
  socket.on("subscribe", (subject) => socket.join(subject));
  socket.on("publish", (subject, content) => io.to(subject).emit("message", content));
  socket.on("fence", (done) => done());
});
http.listen(0, "127.0.0.1", 4096, () => console.log(http.address().port));
