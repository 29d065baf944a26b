"""How an import ends that has not taken every row: what is in, and how to go on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from services.cli.errors import SystemFailed
from services.cli.interrupted import telling_how_far
from shared.store.import_rows import ImportReport


@contextmanager
def telling_what_is_in(seen: Sequence[ImportReport]) -> Iterator[None]:
    """Say so where an import fails or is stopped: the rows before that are in, and stay.

    Args:
        seen: the last report of its progress; none before it has begun.
    """

    def said() -> str | None:
        taken = sum(one.added + one.updated for one in seen)
        if not taken:
            return None
        # What is sent when it is stopped, or fails, the broker may have, or not.
        return (
            f"up to {taken:,} rows before that are in, and stay: mend the file if that is what it "
            "needs, and call this again; a row that comes twice changes nothing"
        )

    with telling_how_far(said):
        yield


def require_none_refused(report: ImportReport) -> None:
    """End an import that has said what it did.

    Raises:
        SystemFailed: rows were refused.
    """
    if report.refused:
        others = "; the others are in" if report.refused < report.read else ""
        raise SystemFailed(f"{report.refused:,} of {report.read:,} rows were refused{others}")
