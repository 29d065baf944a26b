// What watched sitemaps and feeds cost and bring, and what is learned of everybody who sends signals.

import { $, fill, number, percent, stretch, table } from "./common.js";

const WATCHED = [
  { title: "Sitemap or feed", of: (source) => source.url, isText: true },
  { title: "Failures in a row", of: (source) => number(source.failures) },
  { title: "Signals", of: (source) => number(source.signals) },
  { title: "Precision", of: (source) => percent(source.precision) },
  { title: "Recall", of: (source) => percent(source.recall) },
  { title: "Delay", of: (source) => stretch(source.delay_seconds) },
  { title: "Staleness saved", of: (source) => number(source.staleness_saved, 3) },
  { title: "Cost, crawls a day", of: (source) => number(source.cost_crawls_a_day, 3) },
  { title: "Read every", of: (source) => stretch(source.every_seconds) },
  { title: "Polls", of: (source) => number(source.polls) },
  { title: "New pages", of: (source) => number(source.pages) },
  { title: "Kind", of: (source) => source.kind, isText: true },
  { title: "Why it fails", of: (source) => source.reason || "–", isText: true },
];

const SENDERS = [
  { title: "Source", of: (sender) => sender.source, isText: true },
  { title: "Kind", of: (sender) => (sender.is_stream ? "stream of events" : "pings, sitemaps and feeds"), isText: true },
  { title: "Hosts", of: (sender) => number(sender.hosts) },
  { title: "Signals", of: (sender) => number(sender.signals) },
  { title: "Precision", of: (sender) => percent(sender.precision) },
];

function show(answer) {
  const { sources, senders } = answer;
  const failing = sources.filter((source) => source.failures > 0).length;
  if (sources.length > 0) {
    const which = answer.is_whole ? "Watched sitemaps and feeds" : `The first ${sources.length} watched sitemaps and feeds`;
    $("result").append(table(which, WATCHED, sources));
  }
  if (senders.length > 0) $("result").append(table("Everybody who sends signals", SENDERS, senders));
  return sources.length === 0 ? "no site is watched: freshet sites add" : `${sources.length} watched, ${failing} failing`;
}

fill("sources.json", show);
