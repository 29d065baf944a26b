"""What comes from Kafka and PostgreSQL, and what goes there: no other folder here knows them."""
