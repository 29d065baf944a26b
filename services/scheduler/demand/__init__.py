"""What a shard would crawl under each threshold, for the coordinator. Pure."""
