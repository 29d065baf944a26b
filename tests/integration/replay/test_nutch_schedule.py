"""The lab's Nutch is asked what Nutch's own code, as Maven Central has it, is asked."""

import subprocess

import numpy as np
import pytest
from apache import need_apache_kafka

from deploy.docs.places import TOP
from deploy.local.java import resolve_jars
from services.replay.by_schedule import NUTCH, NUTCH_GRID
from services.replay.schedules import next_visit
from shared.units import SECONDS_PER_DAY

FOLDER = TOP / "tests" / "integration" / "replay" / "nutch"
VISITS = 400
BEGIN_SECONDS = 1_600_000_000
"""Nutch takes a page that was modified at time 0 for one of which it does not know when."""


@pytest.mark.slow(6)
def test_the_labs_nutch_visits_when_nutch_does() -> None:
    need_apache_kafka(FOLDER / "pom.xml")
    rng = np.random.default_rng(4)
    visits = []
    for _ in range(VISITS):
        schedule = NUTCH._replace(
            longest_days=float(rng.choice([20.0, 365.0])),
            increase=rng.choice(NUTCH_GRID["increase"]).item(),
            decrease=rng.choice(NUTCH_GRID["decrease"]).item(),
            sync_delta=rng.choice(NUTCH_GRID["sync_delta"]).item(),
        )
        interval = int(60 * 10.0 ** rng.uniform(0.0, 5.0))
        modified = BEGIN_SECONDS + int(rng.integers(10_000_000))
        fetched = modified + int(10.0 ** rng.uniform(0.0, 7.5))
        visits.append((schedule, interval, modified, fetched, bool(rng.random() < 0.5)))
    lines = [
        f"{interval} {modified * 1000} {fetched * 1000} {int(changed)} "
        f"{schedule.longest_days * SECONDS_PER_DAY} {schedule.increase} {schedule.decrease} "
        f"{schedule.sync_delta}\n"
        for schedule, interval, modified, fetched, changed in visits
    ]
    java = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{resolve_jars(FOLDER / 'pom.xml')}/*"]
    nutch = subprocess.run(
        [*java, FOLDER / "Schedule.java"],
        input="".join(lines),
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert nutch.returncode == 0, nutch.stderr
    defaults, *answers = nutch.stdout.splitlines()
    *numbers, synchronises = defaults.split()
    assert synchronises == "true"
    days = [NUTCH.interval_days, NUTCH.shortest_days, NUTCH.longest_days]
    ours = [*(day * SECONDS_PER_DAY for day in days), *NUTCH[4:7]]
    assert ours == pytest.approx([float(number) for number in numbers])
    assert len(answers) == VISITS
    for (schedule, interval, modified, fetched, changed), answer in zip(
        visits, answers, strict=True
    ):
        # What the lab goes by is days of float64; Nutch's intervals are whole seconds.
        found, _, due = next_visit(
            schedule,
            interval / SECONDS_PER_DAY,
            0,
            (fetched if changed else modified) / SECONDS_PER_DAY,
            fetched / SECONDS_PER_DAY,
            changed,
            rng,
        )
        wanted_interval, _, wanted_due = map(int, answer.split())
        assert found * SECONDS_PER_DAY == pytest.approx(wanted_interval, rel=1e-6, abs=1.5)
        assert due * SECONDS_PER_DAY == pytest.approx(wanted_due / 1000.0, rel=0, abs=5.0)
