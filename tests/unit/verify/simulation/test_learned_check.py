"""What the check of what was learned says of a database that is not as it should be."""

from types import SimpleNamespace

import numpy as np

from services.verify.simulation import learned as check

PAGE, URL = 7, "https://a.example/"


def test_a_page_whose_host_is_not_there_is_found_and_ends_no_check(monkeypatch):
    snapshot = SimpleNamespace(
        shard=0,
        pages=SimpleNamespace(page_ids=np.array([PAGE]), host_ids=np.array([5])),
        hosts=SimpleNamespace(host_ids=np.array([3])),
        histories=SimpleNamespace(seen=np.array([1])),
    )
    statements = SimpleNamespace(load_for_learning=lambda _url, _shard: snapshot)
    monkeypatch.setattr(check, "Statements", lambda _: statements)
    database = SimpleNamespace(pages={0: {PAGE: {}}}, urls={(0, PAGE): URL})

    found = check.learned(SimpleNamespace(database=database))

    assert found.count == 1
    assert found.examples == [f"{URL}: its host is not there"]
