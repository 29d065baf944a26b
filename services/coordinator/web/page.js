// Why a page was, or was not, crawled: all that `freshet explain` says, and the value as a curve.

import { axes, element, roundBounds } from "./chart.js";
import { $, facts, fill, link, make, number, table, when } from "./common.js";

function curve(answer, holder) {
  const { at, value } = answer.curve;
  const { threshold, due_at: due } = answer.decision;
  const most = Math.max(...value, threshold ?? 0);
  const of = due === null ? "" : `, reached ${when(due, answer.now)}`;
  const name = `value ${number(answer.decision.crawl_value)} now, threshold ${number(threshold)}${of}`;
  const day = (time) => {
    const date = new Date(time * 1000);
    return Number.isNaN(date.getTime()) ? "beyond all dates" : date.toISOString().slice(0, 16).replace("T", " ");
  };
  const last = at[at.length - 1];
  const { svg, x, y, width } = axes(holder, name, [at[0], last], roundBounds(0, most), [day(at[0]), day(last)]);
  const corners = at.map((time, i) => `${x(time).toFixed(1)},${y(value[i]).toFixed(1)}`);
  svg.append(element("polyline", { class: "series first", points: corners.join(" ") }));
  if (threshold !== null) {
    svg.append(element("line", { class: "series second", x1: x(at[0]), x2: width, y1: y(threshold), y2: y(threshold) }));
  }
  svg.append(element("line", { class: "now", x1: x(answer.now), x2: x(answer.now), y1: y(0), y2: y(most) }));
  svg.append(element("circle", { class: "now", cx: x(answer.now), cy: y(Math.min(answer.decision.crawl_value, most)), r: 4 }));
}

function show(answer) {
  const { now } = answer;
  const result = $("result");
  const why = make("ul", undefined, ...answer.why.map((reason) => make("li", reason)));
  why.className = "why";
  result.append(make("h2", answer.url), why);
  if (answer.curve !== null) {
    const holder = make("div");
    result.append(make("figure", undefined, make("figcaption", "Value since the last crawl, with the signals of now; dashed: the threshold; upright: now"), holder));
    curve(answer, holder);
  }
  const sections = make("div", undefined,
    facts("Value", answer.decision, now),
    facts("State", { status: answer.status, ...answer.state }, now),
    facts("Parameters, per day", answer.parameters, now),
    facts("Host", answer.host, now));
  sections.className = "sections";
  result.append(sections, link("What binds its host", `hosts?host=${encodeURIComponent(answer.host.host)}`));
  result.append(table("Last crawls", [
    { title: "When", of: (crawl) => when(crawl.crawled_at, now), isText: true },
    { title: "Found", of: (crawl) => (crawl.changed ? "changed" : "unchanged"), isText: true },
    { title: "After days", of: (crawl) => number(crawl.interval_days) },
    { title: "Signals", of: (crawl) => number(crawl.signals) },
  ], answer.crawls));
  return answer.why[answer.why.length - 1];
}

const url = new URLSearchParams(location.search).get("url");
if (url) {
  $("url").value = url;
  fill(`page.json?url=${encodeURIComponent(url)}`, show);
}
