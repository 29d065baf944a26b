// Asks the coordinator once a second how things stand, and draws it. With ?world=URL of a
// simulated web's status (on this machine) it shows the true freshness too.

import { draw, short } from "./chart.js";

const DAY = 86400;
const EVERY_MS = 1000;
const KEPT = 600;

const $ = (id) => document.getElementById(id);
const percent = (part, digits = 1) => `${(part * 100).toFixed(digits)} %`;
const count = (number) => number.toLocaleString("en");
const fresh = { at: [], values: [] };
let told = "";

// A simulated clock is read in days, and so is a budget of less than a crawl a second.
function unitOf(state) {
  if (state.speed !== 1 || state.now.bandwidth < 1) return { name: "crawls a day", title: "Crawls a day", factor: DAY };
  return { name: "crawls a second", title: "Crawls a second", factor: 1 };
}

function showTiles(state, unit) {
  const { now } = state;
  $("achieved").textContent = short(now.achieved * unit.factor);
  const scheduled = state.scheduled ? ", by schedule" : "";
  $("bandwidth").textContent = `${percent(now.achieved_ratio)} of ${short(now.bandwidth * unit.factor)} ${unit.name}${scheduled}`;
  $("multiplier").textContent = short(now.multiplier);
  $("cause").textContent = state.version ? `version ${state.version}: ${state.cause}` : "";
  $("cause").title = state.why;
  $("pages").textContent = count(state.pages);
  const silent = state.silent_shards ? `, ${state.silent_shards} silent` : "";
  $("live").textContent = `${state.live_shards} shards report${silent}`;
  $("limited").textContent = percent(now.host_limited);
  const behind = now.fleet_capacity !== null;
  $("capacity").textContent = behind ? short(now.fleet_capacity * unit.factor) : "enough";
  $("held").textContent = behind
    ? `${unit.name}; ${percent(now.fleet_held)} of the slots wait for crawlers`
    : "crawlers answer all that they are asked";
  $("notice").hidden = !state.notice;
  $("notice").textContent = state.notice ?? "";
  tell(state.notice ?? "");
  const simulated = state.speed === 1 ? "" : `, simulated: ${short(state.speed / DAY)} days a second`;
  const led = state.leads || !state.leader ? "" : `, ${state.leader} leads`;
  $("status").textContent = `${new Date(now.clock * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC${simulated}${led}`;
  $("status").className = "";
}

// Who hears the page is told of what is amiss, once, and not each second of the time.
function tell(text) {
  const kind = text.replace(/[\d.]+/g, "");
  if (kind !== told) $("told").textContent = text;
  told = kind;
}

function showCharts(state, unit) {
  const times = state.history.map((s) => s.at);
  const column = (name, factor = 1) => state.history.map((s) => s[name] * factor);
  $("rate-title").replaceChildren(unit.title, legend());
  draw($("rate"), times, [
    { name: "achieved", kind: "first", values: column("achieved", unit.factor) },
    { name: "bandwidth", kind: "second", values: column("bandwidth", unit.factor) },
  ], true);
  draw($("lambda"), times, [{ name: "λ₀", kind: "first", values: column("multiplier") }], false);
  draw($("hosts"), times, [{ name: "held back", kind: "first", values: column("host_limited", 100) }], true);
}

function legend() {
  const made = document.createElement("span");
  made.className = "legend";
  const dashed = document.createElement("i");
  dashed.className = "dashed";
  made.append(document.createElement("i"), "achieved", dashed, "bandwidth");
  return made;
}

// A shard that leaves slots empty gets no more than it can use.
function usable(shard, unit) {
  return shard.usable === null ? "all" : `${short(shard.usable * unit.factor)}, ${percent(shard.ratio)} used`;
}

function showShards(state, unit) {
  const rows = state.shards.map((shard) => {
    const row = document.createElement("tr");
    row.className = shard.silent ? "silent" : "";
    const since = `${shard.seconds_since_report.toFixed(0)} s ago`;
    const cells = [
      shard.shard, shard.instance || "–", count(shard.pages), percent(shard.share),
      short(shard.achieved * unit.factor), usable(shard, unit), percent(shard.host_limited),
      shard.silent ? `silent, ${since}` : since,
    ];
    cells.forEach((value, index) => {
      const cell = document.createElement("td");
      cell.textContent = value;
      if (index === 1) cell.className = "text";
      row.append(cell);
    });
    return row;
  });
  $("shards").replaceChildren(...rows);
}

async function showWorld(address) {
  const status = await (await fetch(address)).json();
  $("world").hidden = $("freshness-figure").hidden = false;
  $("freshness").textContent = percent(status.freshness_now, 2);
  $("mean").textContent = `${percent(status.freshness, 2)} on average`;
  fresh.at.push(Date.now() / 1000);
  fresh.values.push(status.freshness_now * 100);
  if (fresh.at.length > KEPT) { fresh.at.shift(); fresh.values.shift(); }
  draw($("fresh"), fresh.at, [{ name: "freshness", kind: "first", values: fresh.values }], false);
}

async function turn(world) {
  try {
    const state = await (await fetch("state.json")).json();
    const unit = unitOf(state);
    showTiles(state, unit);
    showCharts(state, unit);
    showShards(state, unit);
  } catch {
    $("status").textContent = "the coordinator does not answer";
    $("status").className = "lost";
    tell($("status").textContent);
  }
  if (world) await showWorld(world).catch(() => {});
  setTimeout(turn, EVERY_MS, world);
}

turn(new URLSearchParams(location.search).get("world"));
