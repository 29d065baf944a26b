"""Crawls that stand on the topic behind later ones count or not: their pages are not compared."""

from made_ledgers import URL, answered, asked, ledger

from services.verify.simulation.counting import late_crawls

FIRST, SECOND = (answered(asked(at), at) for at in (10.0, 20.0))


def test_pages_whose_crawls_stand_out_of_order_are_left_out():
    assert late_crawls(ledger(outcomes=[SECOND, FIRST])) == {URL}


def test_in_order_they_are_compared_and_so_are_repetitions():
    assert late_crawls(ledger(outcomes=[FIRST, SECOND, FIRST])) == set()
