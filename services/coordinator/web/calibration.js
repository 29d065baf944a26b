// Whether what was predicted of crawls came true: the figures of `freshet calibration`.

import { axes, element } from "./chart.js";
import { $, facts, fill, make, number, percent, table, when } from "./common.js";

const COLUMNS = (name, title) => [
  { title, of: (row) => row[name], isText: true },
  { title: "Crawls", of: (row) => number(row.crawls) },
  { title: "Predicted", of: (row) => percent(row.predicted) },
  { title: "Found", of: (row) => percent(row.found) },
  { title: "± error", of: (row) => percent(row.error) },
  { title: "Ratio", of: (row) => number(row.ratio, 3) },
];

function plot(rows, holder) {
  const name = "share of crawls that found a change over the chance that was predicted, by tenths; the table has the figures";
  const { svg, x, y } = axes(holder, name, [0, 1], [0, 1, 0.25], ["0: predicted chance", "1"]);
  svg.append(element("line", { class: "series second", x1: x(0), x2: x(1), y1: y(0), y2: y(1) }));
  for (const row of rows) {
    const [at, low, high] = [x(row.predicted), Math.max(row.found - 2 * row.error, 0), Math.min(row.found + 2 * row.error, 1)];
    svg.append(element("line", { class: "series first", x1: at, x2: at, y1: y(low), y2: y(high) }));
    svg.append(element("circle", { class: "point", cx: at, cy: y(row.found), r: 4 }));
  }
}

function withError({ value, error }) {
  return `${percent(value)} ± ${percent(error)}`;
}

function show(answer) {
  const { freshness, by_age: ages, all } = answer;
  const sample = answer.share_of_pages === 1 ? "" : `, a sample of ${percent(answer.share_of_pages)} of the pages`;
  const head = `${number(answer.crawls)} crawls of ${number(answer.pages)} pages since ${when(answer.since, answer.now)}${sample}`;
  const holder = make("div");
  $("result").append(make("p", head), make("figure", undefined, make("figcaption", "Found over predicted, with two standard errors; dashed: as predicted"), holder));
  plot(answer.deciles, holder);
  $("result").append(facts("Freshness between these crawls, by importance", {
    "expected by the model": percent(freshness.expected),
    "from the crawls": `${withError(freshness.found)}, at least ${percent(freshness.least)}`,
    "difference": withError(freshness.difference),
    "by age alone": `${withError(ages.found)}, each page every ${number(ages.revisit_days)} days`,
    "gained over that": `${withError(ages.gain)}, ${percent(ages.least_gain)} to ${percent(ages.most_gain)} wherever changes were`,
    "time that this covers": `${percent(freshness.covered)} of the pages' time`,
  }, 0));
  $("result").append(table("By predicted chance", COLUMNS("decile", "Chance"), answer.deciles));
  $("result").append(table("By host, those with the most crawls", COLUMNS("host", "Host"), answer.hosts));
  $("result").append(table("By source of signals", COLUMNS("source", "Source"), answer.sources));
  return `predicted ${percent(all.predicted)}, found ${percent(all.found)} ± ${percent(all.error)}`;
}

const days = new URLSearchParams(location.search).get("days") ?? "7";
const choice = $("days");
if ([...choice.options].some((option) => option.value === days)) choice.value = days;
fill(`calibration.json?days=${encodeURIComponent(days)}`, show);
