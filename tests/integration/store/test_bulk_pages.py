"""Pages that the benchmark of the estimator writes in bulk are pages like any others."""

from store_contents import SHARDS

from services.bench.bulk_pages import fill, host_of, url_of
from shared.contracts.identity import host_id_of, page_id_of, shard_of
from shared.runtime.settings import load_settings
from shared.store.connection import connect
from shared.store.partitions import FILLFACTOR
from shared.store.snapshot import load_for_learning

PAGES, PAGES_A_HOST = 60, 3


def test_every_page_is_in_its_shard_with_its_host_url_and_history(store):
    settings = load_settings(database_url=store, partitions=SHARDS)
    told = []
    fill(settings, PAGES, told.append, pages_a_host=PAGES_A_HOST, processes=1, fillfactor=100)
    assert told[-1] == PAGES
    found = {}
    for shard in range(SHARDS):
        snapshot = load_for_learning(store, shard)
        assert (snapshot.histories.seen > 0).all()
        owners = snapshot.pages.host_ids.tolist()
        for page_id, host_id in zip(snapshot.pages.page_ids.tolist(), owners, strict=True):
            found[page_id] = (shard, host_id)
    names = {page: host_of(page // PAGES_A_HOST) for page in range(PAGES)}
    assert found == {
        page_id_of(url_of(page, PAGES_A_HOST)): (shard_of(name, SHARDS), host_id_of(name))
        for page, name in names.items()
    }
    with connect(store, "test") as connection:
        urls = connection.execute("SELECT url FROM page_urls").fetchall()
        invalid = connection.execute(
            "SELECT count(*) FROM pg_index WHERE indrelid IN "
            "('pages'::regclass, 'page_urls'::regclass) AND NOT indisvalid"
        ).fetchone()
        rooms = connection.execute(
            "SELECT DISTINCT reloptions FROM pg_class JOIN pg_inherits ON inhrelid = oid "
            "WHERE inhparent = 'pages'::regclass"
        ).fetchall()
    assert rooms == [([f"fillfactor={FILLFACTOR}"],)], "of what is written later"
    assert {url for (url,) in urls} == {url_of(page, PAGES_A_HOST) for page in range(PAGES)}
    assert invalid == (0,)
