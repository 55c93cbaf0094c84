/** Says in the element `state` how the connection of a page stands. */

/** Begin. `nothing` is said as long as no message came; what is returned is to be called when one does. */
export function showState(client, nothing = "") {
  let isLive = false;
  const say = (text) => (document.getElementById("state").textContent = text);
  client.addEventListener("status", ({ detail: { status, subject, info } }) => {
    if (status === "SERVER_UP") say(isLive || !nothing ? `Connected to ${info}` : nothing);
    if (status === "SERVER_DOWN") {
      say(client.phase === "stopped" ? `Refused: ${info}` : `Disconnected: ${info} Connecting again.`);
    }
    if (status === "SUBSCRIBE_DENY") say(`${subject}: ${info}`);
  });
  return () => {
    if (!isLive) say("Live");
    isLive = true;
  };
}
