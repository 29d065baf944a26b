"""The lab: any trace through the production code with a virtual clock, against every policy.

`trace` holds what happened. Which page each slot crawls is decided by the scheduler's own shard
and calendar for the production policies (`virtual_shard`, `by_calendar`), and by a selection of
the lab for all other crawl values (`selecting`, `engine`); both learn by `learning`. `books`
judges the crawls; `policies` names everything that can be compared, `scenarios` bends a trace, and
`experiments` repeats what the papers published.
"""
