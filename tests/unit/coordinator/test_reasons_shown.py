"""What is asked for by reason: from the shards' reports to what operators see."""

from msgspec.structs import replace
from test_picture import NOW, report

from services.cli.commands.status import _reasons
from services.coordinator.core import Coordination
from services.coordinator.picture import Picture, ReasonState
from services.scheduler.demand.reporter import _reasons as reported
from shared.contracts.messages import Bandwidth
from shared.contracts.reported import ReasonCrawls


def test_live_shards_say_together_what_is_asked_for_and_what_is_kept():
    made = Coordination(silent_after_seconds=5.0, lead_seconds=0.3)
    made.lead(3, "one")
    made.receive_bandwidth(Bandwidth(7.0))
    of_first = [ReasonCrawls("new", 1.0, 0.2), ReasonCrawls("value", 1.0, 0.5)]
    of_second = [ReasonCrawls("new", 2.0, 0.2), ReasonCrawls("retry", 0.5)]
    of_silent = [ReasonCrawls("urgent", 9.0)]
    for shard, (reasons, heard) in enumerate(
        ((of_first, 100.0), (of_second, 98.0), (of_silent, 90.0))
    ):
        made.receive_demand(replace(report(shard, 3.0, 0.0, 2.0), reasons=reasons), heard, NOW)
    state = Picture(made).state(NOW, 5.0, "one")
    assert state.reasons == [
        ReasonState("new", 3.0, 0.2),
        ReasonState("value", 1.0, 0.5),
        ReasonState("retry", 0.5, 0.0),
    ]
    said = _reasons([{"reason": r.reason, "crawls_per_second": r.crawls_per_second, "kept": r.kept}
                     for r in state.reasons])  # fmt: skip
    assert said == "new 66.7% (kept 0.2), value 22.2% (kept 0.5), retry 11.1%"


def test_a_report_names_what_was_asked_for_or_is_kept():
    assert reported([0] * 5, 2.0, ()) == []
    assert reported([], 2.0, (0.0, 0.0, 0.3, 0.0)) == [ReasonCrawls("new", 0.0, 0.3)]
    by_tier = [4, 2, 0, 6, 0]
    assert reported(by_tier, 2.0, ()) == [
        ReasonCrawls("value", 2.0),
        ReasonCrawls("retry", 1.0),
        ReasonCrawls("new", 3.0),
    ]
