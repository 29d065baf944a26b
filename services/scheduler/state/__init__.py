"""What a shard knows of its pages and hosts, and what events do to it. Pure: no Kafka, no clock."""
