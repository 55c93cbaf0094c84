/** The map of the cluster, and what changed in it between two looks. */

import { count, element, find, happened } from "./dom.js";

const COLOURS = 7;
let before = null;
let wasReady = null;

/** Show the members and who coordinates which group; tell what changed since the last look. */
export function showCluster(status) {
  if (before) tellChanges(before, status);
  before = status;
  // Members are listed by whoever is asked, itself first; the colours follow their addresses.
  const members = [...status.members].sort((a, b) => (a.address < b.address ? -1 : 1));
  const colours = new Map(members.map(({ address }, at) => [address, `of-${at % COLOURS}`]));
  const lag = status.groups.reduce((sum, group) => sum + group.lag, 0);
  const quorum = status.mode === "Standard"
    ? "Standard mode: no majority is needed"
    : status.quorum ? "a majority of seeds is in sight" : "NO MAJORITY of seeds is in sight";
  find("cluster-state").textContent =
    `${count(status.groups.length)} groups, ${count(lag)} entries not committed yet, ${quorum}`;
  find("cluster-state").className = status.quorum || status.mode === "Standard" ? "" : "warning";
  find("members").replaceChildren(...members.map((member) => card(member, colours, status.groups)));
  find("groups").replaceChildren(...status.groups.map((group) => cell(group, colours)));
  const led = members.map(({ name, groups }) => `${name} ${groups}`).join(", ");
  find("groups").setAttribute("aria-label", `Groups by coordinator: ${led}`);
}

/** Show how far behind members are, as their last reports say. */
export function showLag(reports) {
  for (const { member, now } of reports) {
    const shown = find("members").querySelector(`[data-member="${CSS.escape(member)}"]`);
    if (!shown || now.behind_entries === undefined) continue;
    shown.textContent = lagOf(now.behind_entries);
    shown.classList.toggle("warning", now.behind_entries > 0);
  }
}

function card(member, colours, groups) {
  const item = element("li", "", colours.get(member.address));
  const uncommitted = groups
    .filter(({ coordinator }) => coordinator === member.address)
    .reduce((sum, { lag }) => sum + lag, 0);
  const told = [
    member.seed ? "seed" : "no seed",
    `coordinates ${count(member.groups)} groups`,
    `${count(uncommitted)} entries not committed`,
  ];
  const lag = element("span", lagOf(member.behind), member.behind ? "warning" : "");
  lag.dataset.member = member.address;
  item.append(
    element("strong", member.name),
    ` ${member.state}`,
    document.createElement("br"),
    `${member.address}: ${told.join(", ")}, `,
    lag,
  );
  if (member.state !== "NORMAL") item.classList.add("warning");
  return item;
}

/** Return in words how many entries are not applied that coordinators have committed. */
function lagOf(behind) {
  if (behind === null || behind === undefined) return "lag unknown";
  return behind ? `${count(behind)} entries behind` : "nothing behind";
}

function cell(group, colours) {
  const made = element("i", "", colours.get(group.coordinator) ?? "of-none");
  made.title = `group ${group.group}: ${group.coordinator ?? "no coordinator"}, epoch `
    + `${group.epoch}, ${count(group.lag)} entries not committed, here ${lagOf(group.behind)}`;
  if (group.behind) made.classList.add("behind");
  return made;
}

function tellChanges(old, now) {
  const states = new Map(old.members.map(({ address, state }) => [address, state]));
  for (const { address, name, state } of now.members) {
    const was = states.get(address);
    states.delete(address);
    if (was !== state) happened(`${name}: ${was ?? "new"} → ${state}`, state !== "NORMAL");
  }
  for (const address of states.keys()) happened(`${address} was forgotten`, true);
  if (old.quorum !== now.quorum) {
    happened(now.quorum ? "a majority of seeds is in sight again" : "no majority of seeds", !now.quorum);
  }
  if (old.history !== now.history && now.history) happened(`new history id ${now.history}`, true);
  if (old.trouble !== now.trouble) happened(now.trouble ?? "the trouble is over", !!now.trouble);
  tellElections(old.groups, now.groups, new Map(now.members.map((one) => [one.address, one.name])));
}

function tellElections(old, now, names) {
  const moved = new Map();
  now.forEach(({ coordinator, epoch }, index) => {
    const was = old[index];
    if (!was || (was.coordinator === coordinator && was.epoch === epoch)) return;
    const who = coordinator === null ? "nobody" : (names.get(coordinator) ?? coordinator);
    moved.set(who, (moved.get(who) ?? 0) + 1);
  });
  for (const [who, groups] of moved) {
    const what = who === "nobody" ? "without a coordinator" : `${who} coordinates`;
    happened(`election: ${what} ${count(groups)} groups`, who === "nobody");
  }
}

/** Show whether clients should be sent here, and what the journal says. */
export function showHealth({ isReady, text }, configuration) {
  find("health").textContent = isReady && text === "ready" ? "ready" : text;
  find("health").className = isReady && text === "ready" ? "" : "warning";
  const told = `${isReady} ${text}`;
  if (wasReady !== null && wasReady !== told) happened(`health: ${text}`, !isReady);
  wasReady = told;
  const journal = configuration.Journal === "on"
    ? `on, JournalFsync = ${configuration.JournalFsync}, in ${configuration.JournalFolder}`
    : "off: what this member holds is in memory alone";
  find("journal-state").textContent = before?.trouble ? `${journal}. ${before.trouble}` : journal;
  find("journal-state").className = before?.trouble ? "warning" : "";
}
