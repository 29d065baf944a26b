"""Whether predictions came true, put into words."""

from typing import Any

from services.cli.bandwidths import when
from shared.terminal.output import table


def lines(answer: dict[str, Any]) -> list[str]:
    """The figures of `shared.views.calibration` for people."""
    found, ages = answer["freshness"], answer["by_age"]
    text = [
        f"{answer['crawls']} crawls of {answer['pages']} pages since {when(answer['since'])}"
        + ("" if answer["share_of_pages"] == 1.0 else f", {answer['share_of_pages']:.2%} of all"),
        "",
    ]
    for name in ("deciles", "hosts", "sources"):
        text += [*table(answer[name], empty="-"), ""]
    text += [
        "freshness over the time between these crawls, weighted by importance",
        f"  expected by the model   {found['expected']:.4f}",
        f"  from the crawls         {_with_error(found['found'])}, at least {found['least']:.4f}",
        f"  difference              {_with_error(found['difference'])}",
        f"  by age alone            {_with_error(ages['found'])}, each page every "
        f"{ages['revisit_days']:.4g} days",
        f"  gained over that        {_with_error(ages['gain'])}, {ages['least_gain']:.4f} to "
        f"{ages['most_gain']:.4f} wherever changes were",
        f"  time that this covers   {found['covered']:.1%} of the pages' time",
    ]
    return text


def _with_error(estimate: dict[str, float]) -> str:
    return f"{estimate['value']:.4f} ± {estimate['error']:.4f}"
