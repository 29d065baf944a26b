"""Pages that are known before a discoverer runs, and how the state of one is set."""

KNOWN = [f"https://{host}.example/{n}" for host in "ab" for n in range(3)]
REMOVED_PAGE, GONE_PAGE = KNOWN[2], KNOWN[4]
CHANGE = (
    "UPDATE pages SET status = %s FROM page_urls AS u "
    "WHERE u.shard = pages.shard AND u.page_id = pages.page_id AND url = %s"
)
