"""The workers in one thread on virtual time, between models of Kafka and PostgreSQL."""
