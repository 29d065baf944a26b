// What binds hosts: a limit, a bound of open requests, a crawl delay, a pause that they asked for, a back-off or a block.

import { $, facts, fill, link, make, number, stretch, table, when } from "./common.js";

const COLUMNS = (now) => [
  { title: "Host", of: (host) => link(host.host, `hosts?host=${encodeURIComponent(host.host)}`), isText: true },
  { title: "Crawls/s at most", of: (host) => number(host.max_crawls_per_second) },
  { title: "by", of: (host) => host.by, isText: true },
  { title: "Left alone until", of: (host) => (host.blocked_until === null ? "–" : when(host.blocked_until, now)), isText: true },
  { title: "by", of: (host) => host.blocked_by ?? "–", isText: true },
  { title: "Open requests at most", of: (host) => number(host.max_open_requests) },
  { title: "Crawl delay", of: (host) => stretch(host.crawl_delay_seconds) },
  { title: "Back-off", of: (host) => (host.back_off_seconds > 0 ? stretch(host.back_off_seconds) : "–") },
  { title: "Failures in a row", of: (host) => number(host.failures) },
];

const GROUP_COLUMNS = [
  { title: "Domain or address", of: (group) => group.group, isText: true },
  { title: "Crawls/s at most, together", of: (group) => number(group.crawls_per_second) },
  { title: "Pages", of: (group) => number(group.pages) },
  { title: "Shards", of: (group) => number(group.shards) },
];

// Groups whose hosts share a limit; of one host the nearest domain above it, and its address.
async function showGroups(name, address) {
  const { groups, default_groups: all } = await (await fetch("state.json")).json();
  const below = (group) => `.${name.replace(/:\d+$/, "")}`.endsWith(`.${group.group}`);
  const nearest = name && groups.filter(below).sort((a, b) => b.group.length - a.group.length)[0];
  const shown = name ? groups.filter((group) => group === nearest || group.group === address) : groups;
  const goesByAll = all && (name ? address && !groups.some((group) => group.group === address) : true);
  if (goesByAll) shown.push({ group: name ? address : "any other that crawlers name", crawls_per_second: all.crawls_per_second, pages: null, shards: null });
  if (shown.length) $("result").append(table("Domains and addresses whose hosts share a limit", GROUP_COLUMNS, shown));
}

function showOne({ hosts: [host], now }) {
  const rate = `At most ${number(host.max_crawls_per_second)} crawls a second: ${host.by}.`;
  const block = host.blocked_until === null ? "It is not left alone." : `Left alone until ${when(host.blocked_until, now)}: ${host.blocked_by}.`;
  const open = host.max_open_requests === null ? "" : `At most ${number(host.max_open_requests)} open requests: ${host.open_requests_by}.`;
  const why = make("ul", undefined, ...[rate, open, block].filter((line) => line).map((line) => make("li", line)));
  why.className = "why";
  $("result").append(make("h2", host.host), why, facts("All rules", host, now), link("All hosts that a rule binds", "hosts"));
  showGroups(host.host, host.named_group);
  return [`${host.host}:`, rate, open, block].filter((line) => line).join(" ");
}

function showAll({ hosts, now, is_whole: isWhole, shards_away: away }) {
  const leftOut = away.length ? `; shards ${away.join(" and ")} are left out: their database is away` : "";
  if (hosts.length === 0) return `no host has a rule of its own now: all have the default${leftOut}`;
  const which = `${isWhole ? `${hosts.length} hosts` : `the first ${hosts.length} hosts, by name,`} that a rule binds now${leftOut}`;
  $("result").append(table(which, COLUMNS(now), hosts));
  return which;
}

const host = new URLSearchParams(location.search).get("host");
if (host) {
  $("host").value = host;
  fill(`hosts.json?host=${encodeURIComponent(host)}`, showOne);
} else {
  fill("hosts.json", showAll);
  showGroups();
}
