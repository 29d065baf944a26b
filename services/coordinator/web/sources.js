// What watched sitemaps, feeds and streams of events cost and bring, and what is learned of everybody who sends signals.

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

const STREAMS = [
  { title: "Source", of: (stream) => stream.source, isText: true },
  { title: "Stream", of: (stream) => stream.url, isText: true },
  { title: "Failures in a row", of: (stream) => number(stream.failures) },
  { title: "Signals", of: (stream) => number(stream.signals) },
  { title: "Precision", of: (stream) => percent(stream.precision) },
  { title: "Recall", of: (stream) => percent(stream.recall) },
  { title: "Delay", of: (stream) => stretch(stream.delay_seconds) },
  { title: "Staleness saved", of: (stream) => number(stream.staleness_saved, 3) },
  { title: "Cost, crawls a day", of: (stream) => number(stream.cost_crawls_a_day, 3) },
  { title: "Bytes a day", of: (stream) => number(stream.bytes_a_day === null ? null : Math.round(stream.bytes_a_day)) },
  { title: "Events", of: (stream) => number(stream.entries) },
  { title: "Connections", of: (stream) => number(stream.polls) },
  { title: "Gaps", of: (stream) => number(stream.gaps) },
  { title: "Why it fails", of: (stream) => stream.reason || "–", isText: true },
];

const SENDERS = [
  { title: "Source", of: (sender) => sender.source, isText: true },
  { title: "Kind", of: (sender) => (sender.is_stream ? "stream of events" : "pings, sitemaps and feeds"), isText: true },
  { title: "Hosts", of: (sender) => number(sender.hosts) },
  { title: "Signals", of: (sender) => number(sender.signals) },
  { title: "Precision", of: (sender) => percent(sender.precision) },
  { title: "Recall", of: (sender) => percent(sender.recall) },
  { title: "Delay", of: (sender) => stretch(sender.delay_seconds) },
];

function show(answer) {
  const { sources, streams, senders } = answer;
  const failing = sources.filter((source) => source.failures > 0).length;
  if (sources.length > 0) {
    const which = answer.is_whole ? "Watched sitemaps and feeds" : `The first ${sources.length} watched sitemaps and feeds`;
    $("result").append(table(which, WATCHED, sources));
  }
  if (streams.length > 0) $("result").append(table("Streams of events", STREAMS, streams));
  if (senders.length > 0) $("result").append(table("Everybody who sends signals", SENDERS, senders));
  const away = streams.filter((stream) => stream.failures > 0).length;
  const said = sources.length === 0 ? "no site is watched: freshet sites add" : `${sources.length} watched, ${failing} failing`;
  return streams.length === 0 ? said : `${said}; ${streams.length} of streams, ${away} failing`;
}

fill("sources.json", show);
